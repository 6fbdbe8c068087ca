"""Connections on a link: sockets at this end, ``DATA``, ``SHUT`` and ``ROOM`` frames on the way. Both ends use it.

    DATA    a connection's bytes, at most ``PIECE``
    ROOM    so many bytes were delivered, and may be sent anew
    SHUT    empty: no more bytes come this way. One byte: the connection is closed

Rules of this file:
1. An end sends at most ``WINDOW`` bytes that the other has not delivered, so neither a slow reader nor a hostile end
   makes the other hold more. More than that breaks the protocol.
2. Frames for a connection that is not there are late, and ignored.
3. One thread moves all bytes. It waits for the link, never for a socket.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import DATA, ROOM, SHUT, MoreRoom, frame_of, message_of

WINDOW = 1 << 18
"""Bytes on the way, for one direction of a connection."""
PIECE = 1 << 15
MOST = 256
"""Connections on a link."""
CLOSED = b"\x01"


class _Tunnel:
    """One connection. The lock of its ``Tunnels`` guards it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.credit = WINDOW
        self.has_read_all = self.is_last = False
        """Whether the socket has ended; whether the other end sends no more."""
        self.is_shut = False
        """Whether the socket was shut for writing since then."""
        self.waiting = bytearray()
        """Bytes that wait for the socket."""
        self.unacknowledged = 0
        """Delivered bytes that no ``ROOM`` frame has told the other end yet."""

    def events(self) -> int:
        reads = select.POLLIN if self.credit and not self.has_read_all else 0
        return reads | (select.POLLOUT if self.waiting else 0)


class Tunnels:
    """``_lock`` guards all attributes."""

    def __init__(self, send: Callable[[Frame], None], ended: Callable[[], None] = lambda: None) -> None:
        """``send``: may wait for the link. ``ended``: called for each connection that has ended; it never waits."""
        self._send, self._ended = send, ended
        self._lock = threading.Lock()
        self._open: dict[int, _Tunnel] = {}
        self._wakeup = os.pipe()
        os.set_blocking(self._wakeup[1], False)
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, number: int, connection: socket.socket, first: Frame | None = None) -> bool:
        """Take over a socket and move its bytes. Return False if there are too many, or the link is over; the socket is
        closed then. ``first``: sent before its bytes. The other end's answer to it finds the connection here."""
        with self._lock:
            if first is not None:
                self._send(first)
            fits = not self._is_closed and len(self._open) < MOST and number not in self._open
            if fits:
                self._open[number] = _Tunnel(connection)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._move, name="tunnels", daemon=True)
                    self._thread.start()
        if not fits:
            connection.close()
        self._wake_up()
        return fits

    def refuse(self, number: int) -> None:
        """Tell the other end that a connection that it uses is not here."""
        self._send(Frame(SHUT, number, CLOSED))

    def take(self, frame: Frame) -> None:
        """Take a frame from the other end. Raise LinkError if it breaks the protocol. Never wait."""
        with self._lock:
            tunnel = self._open.get(frame.stream)
            if tunnel is None:
                return
            if frame.kind == DATA:
                tunnel.waiting += frame.body
                if len(tunnel.waiting) + tunnel.unacknowledged > WINDOW or tunnel.is_last:
                    raise LinkError("sent more bytes of a connection than it may")
            elif frame.kind == ROOM:
                tunnel.credit += max(message_of(frame, MoreRoom).size, 0)
                if tunnel.credit > WINDOW:
                    raise LinkError("made more room for a connection than there is")
            elif frame.kind == SHUT and not frame.body:
                tunnel.is_last = True
            else:
                self._end(frame.stream)
        self._wake_up()

    def close(self) -> None:
        """Close all connections. Not called by the thread that moves bytes."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            for number in list(self._open):
                self._end(number)
            thread, self._thread = self._thread, None
            if is_first:
                self._wake()
        if thread is not None:
            thread.join()
        for descriptor in self._wakeup if is_first else ():
            os.close(descriptor)

    def _wake_up(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._wake()

    def _wake(self) -> None:
        """Hold the lock: the wakeup pipe is open until this is closed."""
        with suppress(BlockingIOError):  # the pipe is full: the thread wakes up anyway
            os.write(self._wakeup[1], b"\0")

    def _end(self, number: int) -> None:
        """Hold the lock."""
        self._open.pop(number).socket.close()
        self._ended()

    # --- the thread ---

    def _move(self) -> None:
        while True:
            poll = select.poll()
            poll.register(self._wakeup[0], select.POLLIN)
            with self._lock:
                if self._is_closed:
                    return
                by_descriptor = {tunnel.socket.fileno(): number for number, tunnel in self._open.items()}
                for number in by_descriptor.values():
                    tunnel = self._open[number]
                    if tunnel.events():
                        poll.register(tunnel.socket.fileno(), tunnel.events())
            for descriptor, _events in poll.poll():
                if descriptor == self._wakeup[0]:
                    os.read(descriptor, 4096)
            for number in by_descriptor.values():
                with self._lock:
                    frames = self._attend(number)
                for frame in frames:
                    self._send(frame)

    def _attend(self, number: int) -> list[Frame]:
        """Move as many bytes as one connection can take now. Return the frames to send. Hold the lock."""
        tunnel = self._open.get(number)
        if tunnel is None:
            return []
        try:
            frames = [*self._deliver(number, tunnel), *self._collect(number, tunnel)]
        except OSError:  # the socket's other end is gone
            self._end(number)
            return [Frame(SHUT, number, CLOSED)]
        if tunnel.has_read_all and tunnel.is_last and not tunnel.waiting:
            self._end(number)
        return frames

    def _deliver(self, number: int, tunnel: _Tunnel) -> list[Frame]:
        frames = []
        if tunnel.waiting:
            try:
                sent = tunnel.socket.send(tunnel.waiting)
            except BlockingIOError:
                sent = 0
            del tunnel.waiting[:sent]
            tunnel.unacknowledged += sent
        if tunnel.unacknowledged and (not tunnel.waiting or tunnel.unacknowledged >= WINDOW // 2):
            frames = [frame_of(ROOM, MoreRoom(tunnel.unacknowledged), number)]
            tunnel.unacknowledged = 0
        if tunnel.is_last and not (tunnel.waiting or tunnel.is_shut):
            tunnel.is_shut = True
            tunnel.socket.shutdown(socket.SHUT_WR)
        return frames

    def _collect(self, number: int, tunnel: _Tunnel) -> list[Frame]:
        if tunnel.has_read_all or not tunnel.credit:
            return []
        try:
            data = tunnel.socket.recv(min(PIECE, tunnel.credit))
        except BlockingIOError:
            return []
        if not data:
            tunnel.has_read_all = True
            return [Frame(SHUT, number, b"")]
        tunnel.credit -= len(data)
        return [Frame(DATA, number, data)]
