"""Many connections over one pair of pipes: for containers that reach this machine only through a command line.

One end runs in the container and listens on its loopback; the other runs here and connects to the gate. The pipes are
the standard streams of a process that the engine's command line has started in the container.

Rules of this file: it imports only standard library modules that every Python from 3.6 on has, because the end in the
container runs this file's text. Neither end waits for one connection while another could continue, and neither holds
more than twice ``WINDOW`` bytes for a connection that does not accept them.

The connecting end does not trust the other: it stops reading while its answers are not accepted. The accepting end
always reads, so the two never wait for each other. Its unsent data is bounded by its own connections, and it accepts no
connection while much is unsent.

A frame: kind (1 byte), connection (4), length (2), then that many payload bytes. OPEN, DATA and SHUT (no more data from
this side) come in order; RESET ends a connection at once; TAKEN says how many DATA bytes were passed on.
"""

import os
import select
import socket
import struct

OPEN, DATA, SHUT, RESET, TAKEN, READY = 1, 2, 3, 4, 5, 6
WINDOW = 256 * 1024
STREAMS = 512
"""Connections at the same time; more are refused."""
MOST = 32 * 1024
HEAD = struct.Struct(">BIH")
COUNT = struct.Struct(">I")


class MuxStream:
    """A connection at this end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pending = bytearray()
        self.untaken = 0
        self.read_ended = self.peer_ended = self.shut = False

    @property
    def is_over(self) -> bool:
        return self.read_ended and self.shut


class Mux:
    """One end. ``accept`` is a listener whose connections are opened at the other end; ``port`` is the loopback port to
    which the other end's connections are connected. Without either, no connection can be opened.

    Used by the thread that calls ``run``.
    """

    def __init__(self, read: int, write: int, accept: "socket.socket | None" = None, port: int = 0) -> None:
        self._read, self._write, self._accept, self._port = read, write, accept, port
        self._streams: dict[int, MuxStream] = {}
        self._incoming, self._outgoing = bytearray(), bytearray()
        self._last = 0
        for descriptor in (read, write):
            os.set_blocking(descriptor, False)

    def say(self, kind: int, number: int, payload: bytes = b"") -> None:
        self._outgoing += HEAD.pack(kind, number, len(payload)) + payload

    def run(self) -> None:
        """Serve until the other end closes its pipe."""
        try:
            while self._poll_once():
                pass
        finally:
            for stream in self._streams.values():
                stream.sock.close()

    def _poll_once(self) -> bool:
        poller, streams = select.poll(), {}
        is_reading = self._accept is not None or len(self._outgoing) <= 2 * WINDOW
        poller.register(self._read, select.POLLIN if is_reading else 0)  # its end of file is reported in any case
        if self._outgoing:
            poller.register(self._write, select.POLLOUT)
        if self._accept is not None and len(self._outgoing) < WINDOW:
            poller.register(self._accept, select.POLLIN)
        for number, stream in self._streams.items():
            readable = not stream.read_ended and stream.untaken < WINDOW and len(self._outgoing) < WINDOW
            events = (select.POLLIN if readable else 0) | (select.POLLOUT if stream.pending else 0)
            if events:
                streams[stream.sock.fileno()] = number
                poller.register(stream.sock, events)
        for descriptor, events in poller.poll():
            if descriptor == self._read:
                if not self._read_frames():
                    return False
            elif descriptor == self._write:
                if not self._write_frames():
                    return False
            elif descriptor in streams:
                self._handle_events(streams[descriptor], events)
            else:
                self._accept_connection()
        return True

    def _accept_connection(self) -> None:
        assert self._accept is not None
        try:
            sock = self._accept.accept()[0]
        except OSError:
            return  # the peer did not wait
        self._last += 1
        self._add(self._last, sock)
        self.say(OPEN, self._last)

    def _add(self, number: int, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._streams[number] = MuxStream(sock)

    def _write_frames(self) -> bool:
        try:
            count = os.write(self._write, self._outgoing[: 16 * MOST])
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._outgoing[:count]
        return True

    def _read_frames(self) -> bool:
        try:
            data = os.read(self._read, 16 * MOST)
        except BlockingIOError:
            return True
        self._incoming += data
        offset = 0
        while len(self._incoming) - offset >= HEAD.size:
            kind, number, length = HEAD.unpack_from(self._incoming, offset)
            if len(self._incoming) - offset < HEAD.size + length:
                break
            offset += HEAD.size + length
            self._handle_frame(kind, number, bytes(self._incoming[offset - length : offset]))
        del self._incoming[:offset]
        return bool(data)

    def _handle_frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == OPEN and self._port and number not in self._streams and len(self._streams) < STREAMS:
            try:
                self._add(number, socket.create_connection(("127.0.0.1", self._port)))
            except OSError:
                self.say(RESET, number)
            return
        stream = self._streams.get(number)
        if stream is None:
            if kind == OPEN:
                self.say(RESET, number)  # DATA for a connection that is over is dropped: its end has been sent
        elif kind == DATA and len(stream.pending) + len(payload) <= 2 * WINDOW and not stream.peer_ended:
            stream.pending += payload
            self._write_socket(number, stream)
        elif kind == SHUT:
            stream.peer_ended = True
            self._write_socket(number, stream)
        elif kind == TAKEN and len(payload) == COUNT.size:
            stream.untaken = max(0, stream.untaken - COUNT.unpack(payload)[0])
        else:  # RESET, or an invalid frame
            self._drop(number)

    def _handle_events(self, number: int, events: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        if events & select.POLLOUT:
            self._write_socket(number, stream)
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR) and number in self._streams:
            self._read_socket(number, stream)

    def _read_socket(self, number: int, stream: MuxStream) -> None:
        if stream.read_ended or stream.untaken >= WINDOW:
            return
        try:
            data = stream.sock.recv(MOST)
        except BlockingIOError:
            return
        except OSError:
            self._drop(number, notify=True)
            return
        if data:
            stream.untaken += len(data)
            self.say(DATA, number, data)
        else:
            stream.read_ended = True
            self.say(SHUT, number)
            self._end(number, stream)

    def _write_socket(self, number: int, stream: MuxStream) -> None:
        try:
            while stream.pending:
                count = stream.sock.send(stream.pending[: 4 * MOST])
                del stream.pending[:count]
                self.say(TAKEN, number, COUNT.pack(count))
        except BlockingIOError:
            return
        except OSError:
            self._drop(number, notify=True)
            return
        if stream.peer_ended and not stream.shut:
            stream.shut = True
            try:
                stream.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._drop(number, notify=True)
                return
        self._end(number, stream)

    def _end(self, number: int, stream: MuxStream) -> None:
        if stream.is_over:
            self._drop(number)

    def _drop(self, number: int, notify: bool = False) -> None:
        self._streams.pop(number).sock.close()
        if notify:
            self.say(RESET, number)


def listen(port: int) -> None:
    """Run the end in the container."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
    listener.setblocking(False)
    mux = Mux(0, 1, accept=listener)
    mux.say(READY, 0)
    mux.run()
