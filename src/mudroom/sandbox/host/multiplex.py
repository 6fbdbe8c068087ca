"""Many connections over one pair of pipes: for containers that nothing of this machine but a command line reaches.

One end runs in the container and listens on its loopback; the other runs here and connects to the gate. The pipes are
the standard streams of a process that the engine's command line has started in the container.

Rules of this file: the standard library only, and of that what every Python from 3.6 on has: its text is what the end
in the container runs. Neither end waits for one connection while another could go on, and neither holds more than
twice ``WINDOW`` bytes for a connection whose own end does not take them.

The end that connects does not believe the other one: it stops reading while that does not take its answers. The end
that accepts always reads, so the two never wait for each other; what it has to say is bounded by its own connections,
and it accepts none while much is unsaid.

A frame: kind (1 byte), connection (4), length (2), then so many bytes. OPEN, DATA and SHUT (no more data from this
side) come in order; RESET ends a connection at once; TAKEN says how many bytes of DATA have been passed on.
"""

import os
import select
import socket
import struct

OPEN, DATA, SHUT, RESET, TAKEN, READY = 1, 2, 3, 4, 5, 6
WINDOW = 256 * 1024
STREAMS = 512
"""Connections at one time; more are refused."""
MOST = 32 * 1024
HEAD = struct.Struct(">BIH")
COUNT = struct.Struct(">I")


class MuxStream:
    """One connection at this end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pending = bytearray()
        self.untaken = 0
        self.read_ended = self.peer_ended = self.shut = False

    @property
    def is_over(self) -> bool:
        return self.read_ended and self.shut


class Mux:
    """``accept``: whose connections are opened at the other end. ``port``: of the loopback, where those of the other
    end are connected to. Without either, nothing can be opened."""

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
        """Until the other end closes its pipe."""
        try:
            while self._turn():
                pass
        finally:
            for stream in self._streams.values():
                stream.sock.close()

    def _turn(self) -> bool:
        poller, streams = select.poll(), {}
        heard = self._accept is not None or len(self._outgoing) <= 2 * WINDOW
        poller.register(self._read, select.POLLIN if heard else 0)  # its end is told in any case
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
                if not self._hear():
                    return False
            elif descriptor == self._write:
                if not self._tell():
                    return False
            elif descriptor in streams:
                self._serve(streams[descriptor], events)
            else:
                self._admit()
        return True

    def _admit(self) -> None:
        assert self._accept is not None
        try:
            sock = self._accept.accept()[0]
        except OSError:
            return  # it did not wait
        self._last += 1
        self._add(self._last, sock)
        self.say(OPEN, self._last)

    def _add(self, number: int, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._streams[number] = MuxStream(sock)

    def _tell(self) -> bool:
        try:
            count = os.write(self._write, self._outgoing[: 16 * MOST])
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._outgoing[:count]
        return True

    def _hear(self) -> bool:
        try:
            data = os.read(self._read, 16 * MOST)
        except BlockingIOError:
            return True
        self._incoming += data
        at = 0
        while len(self._incoming) - at >= HEAD.size:
            kind, number, length = HEAD.unpack_from(self._incoming, at)
            if len(self._incoming) - at < HEAD.size + length:
                break
            at += HEAD.size + length
            self._obey(kind, number, bytes(self._incoming[at - length : at]))
        del self._incoming[:at]
        return bool(data)

    def _obey(self, kind: int, number: int, payload: bytes) -> None:
        if kind == OPEN and self._port and number not in self._streams and len(self._streams) < STREAMS:
            try:
                self._add(number, socket.create_connection(("127.0.0.1", self._port)))
            except OSError:
                self.say(RESET, number)
            return
        stream = self._streams.get(number)
        if stream is None:
            if kind == OPEN:
                self.say(RESET, number)  # DATA of one that is over is dropped: its end has been told
        elif kind == DATA and len(stream.pending) + len(payload) <= 2 * WINDOW and not stream.peer_ended:
            stream.pending += payload
            self._pass_on(number, stream)
        elif kind == SHUT:
            stream.peer_ended = True
            self._pass_on(number, stream)
        elif kind == TAKEN and len(payload) == COUNT.size:
            stream.untaken = max(0, stream.untaken - COUNT.unpack(payload)[0])
        else:  # RESET, or what no honest end says
            self._drop(number)

    def _serve(self, number: int, events: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        if events & select.POLLOUT:
            self._pass_on(number, stream)
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR) and number in self._streams:
            self._take(number, stream)

    def _take(self, number: int, stream: MuxStream) -> None:
        if stream.read_ended or stream.untaken >= WINDOW:
            return
        try:
            data = stream.sock.recv(MOST)
        except BlockingIOError:
            return
        except OSError:
            self._drop(number, tell=True)
            return
        if data:
            stream.untaken += len(data)
            self.say(DATA, number, data)
        else:
            stream.read_ended = True
            self.say(SHUT, number)
            self._end(number, stream)

    def _pass_on(self, number: int, stream: MuxStream) -> None:
        try:
            while stream.pending:
                count = stream.sock.send(stream.pending[: 4 * MOST])
                del stream.pending[:count]
                self.say(TAKEN, number, COUNT.pack(count))
        except BlockingIOError:
            return
        except OSError:
            self._drop(number, tell=True)
            return
        if stream.peer_ended and not stream.shut:
            stream.shut = True
            try:
                stream.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._drop(number, tell=True)
                return
        self._end(number, stream)

    def _end(self, number: int, stream: MuxStream) -> None:
        if stream.is_over:
            self._drop(number)

    def _drop(self, number: int, tell: bool = False) -> None:
        self._streams.pop(number).sock.close()
        if tell:
            self.say(RESET, number)


def listen(port: int) -> None:
    """What the end in the container does."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
    listener.setblocking(False)
    mux = Mux(0, 1, accept=listener)
    mux.say(READY, 0)
    mux.run()
