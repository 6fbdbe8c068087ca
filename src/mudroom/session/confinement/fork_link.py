"""Connections to forks on another machine, carried by a link as numbered parts.

The side that asks: the gate gets one end of a socket pair (``ForkLink.dial``), and the link carries the other. The side
that is asked: it makes the connection as for a command of its own, and the link carries the connected socket
(``ForkLink.carry``). ``fork_dial.py`` asks for the first where no fork of this machine has the label; the origin
decides (``core/network/fork_route.py``).

Rules of this file: nothing waits. Bytes on the way are bounded: of ``WINDOW`` in one direction a side sends no more
until the other has told of room (``room``); a side that sends more all the same is cut off. The thread of the link's
owner calls everything but ``dial`` and the methods of ``LinkDial``, which are for the thread of a command; those two
share nothing but the answer, which is written before the bell is rung.
"""

from __future__ import annotations

import _thread
import select
import socket
from collections.abc import Callable

from mudroom.errors import MudroomError
from mudroom.session.confinement.dialler import DialledFork, ForkRefused
from mudroom.typing import Literal

WINDOW = 1 << 20
"""Bytes of a connection that are on the way in one direction."""
PART = 1 << 16
MOST = 64
"""Connections of a link at the same time; each takes up to four descriptors."""

Kind = Literal["dial", "data", "room", "shut", "cut"]
Send = Callable[[Kind, int, bytes], None]
"""Queues a message: ``dial`` (the body is ``CALLER HOST PORT``), ``data``, ``room`` (bytes that were taken, in decimal
digits), ``shut`` (no more is sent), ``cut`` (neither sent nor taken)."""


class CarriedSocket:
    """One end of a carried connection. Owner: the thread of the link's owner."""

    def __init__(self, number: int, near: socket.socket, send: Send, over: Callable[[int], None]) -> None:
        """``over`` is called with the number when both directions have ended."""
        near.setblocking(False)
        self.near = near
        """For the owner's poller: readable if ``pump`` has work to do, and with room for ``flush`` if ``is_full``."""
        self._number, self._send, self._over = number, send, over
        self._unwritten = bytearray()
        self._room = WINDOW
        self._is_sent = self._is_received = False

    @property
    def is_full(self) -> bool:
        return bool(self._unwritten)

    @property
    def is_readable(self) -> bool:
        """Whether the near end is to be polled for bytes: not while the other side has no room."""
        return not self._is_sent and self._room > 0

    def pump(self) -> None:
        """Send what the near end has written, as far as the other side has room."""
        while self.is_readable:
            try:
                data = self.near.recv(min(PART, self._room))
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                if _has_gone(self.near):
                    self.end()
                    return
                self._is_sent = True
                self._send("shut", self._number, b"")
                self._end_if_over()
                return
            self._room -= len(data)
            self._send("data", self._number, data)

    def handle(self, kind: Kind, body: bytes) -> None:
        """Take a message of the other side."""
        if kind == "room":
            count = int(body) if body.isdigit() and len(body) < 10 else 0
            self._room = min(WINDOW, self._room + count)
            self.pump()
        elif kind == "shut":
            self._is_received = True
            self.flush()
        elif kind == "cut":
            self._close()
        elif self._is_received or len(self._unwritten) + len(body) > WINDOW:
            self.end()  # it does not keep to the rules
        else:
            self._unwritten += body
            self.flush()

    def flush(self) -> None:
        """Write what is held as far as the near end has room, and tell the other side."""
        written = 0
        while self._unwritten:
            try:
                sent = self.near.send(self._unwritten[:PART])
            except BlockingIOError:
                break
            except OSError:
                self.end()
                return
            del self._unwritten[:sent]
            written += sent
        if written and not self._is_received:
            self._send("room", self._number, b"%d" % written)
        if self._is_received and not self._unwritten:
            try:
                self.near.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the near end has gone
            self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_sent and self._is_received and not self._unwritten:
            self._close()

    def end(self) -> None:
        """Cut the connection, and tell the other side."""
        if self.near.fileno() >= 0:
            self._send("cut", self._number, b"")
            self._close()

    def _close(self) -> None:
        if self.near.fileno() >= 0:
            self.near.close()
            self._unwritten.clear()
            self._is_sent = self._is_received = True
            self._over(self._number)


def _has_gone(near: socket.socket) -> bool:
    """Return whether the other end is closed, and not shut for sending only (poll(2), POLLHUP)."""
    poller = select.poll()
    poller.register(near, 0)
    return bool(poller.poll(0))


class LinkDial:
    """A connection that the other machine was asked for (``PendingConnection``). ``_answer`` is written once, before
    the bell is rung; all else is owned by the thread of the command."""

    def __init__(self, theirs: socket.socket) -> None:
        """``theirs``: the gate's end."""
        self._theirs = theirs
        self._bell, self.ring = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        """``ring`` belongs to the link's owner, who closes it with the answer."""
        self._answer: DialledFork | MudroomError | None = None

    def fileno(self) -> int:
        """Return the descriptor that is readable when the other machine has answered."""
        return self._bell.fileno()

    def result(self) -> DialledFork:
        """Return the connection. Raise ForkRefused or MudroomError."""
        answer = self._answer
        if answer is None:
            raise MudroomError("the other machine has not answered")
        if isinstance(answer, MudroomError):
            raise answer
        return answer._replace(descriptor=self._theirs.detach())

    def close(self) -> None:
        """Give up what was not taken: the link's owner sees the end of it."""
        self._bell.close()
        self._theirs.close()

    def answer(self, answer: DialledFork | MudroomError) -> None:
        """Take the answer of the other machine. Called by the link's owner."""
        if self._answer is None:
            self._answer = answer
            self.ring.close()


class ForkLink:
    """The connections of a link in one direction of asking. ``_lock`` guards ``_last`` and ``_dials``."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = _thread.allocate_lock()
        self._last = 0
        self._dials: dict[int, LinkDial] = {}
        """Connections that have no answer yet."""
        self.carried: dict[int, CarriedSocket] = {}

    def dial(self, caller: str, host: str, port: int) -> LinkDial:
        """Ask the other machine for a connection. Raise MudroomError if there are too many."""
        ours, theirs = socket.socketpair()
        with self._lock:
            if len(self.carried) >= MOST:
                ours.close()
                theirs.close()
                raise MudroomError(f"{MOST} connections go through the link to the other machine already")
            self._last += 1
            number = self._last
            dial = self._dials[number] = LinkDial(theirs)
            self.carried[number] = CarriedSocket(number, ours, self._send, self._forget)
        self._send("dial", number, f"{caller} {host} {port}".encode())
        return dial

    def dialled(
        self, number: int, reason: str, *, is_refused: bool = False, rule: str = "", http: bool = False
    ) -> None:
        """Take the answer of the other machine. ``reason``: why there is no connection; empty: it stands."""
        with self._lock:
            dial = self._dials.pop(number, None)
        if dial is None:
            return
        failure = ForkRefused(reason) if is_refused else MudroomError(reason)
        dial.answer(failure if reason else DialledFork(-1, rule, http))
        if reason and number in self.carried:
            self.carried[number].end()

    def carry(self, number: int, connection: socket.socket) -> CarriedSocket:
        """Carry a connection that was made for the other machine. The link owns it. Raise MudroomError if the number
        is taken, or there are too many; it is closed then."""
        with self._lock:
            if number in self.carried or len(self.carried) >= MOST:
                connection.close()
                raise MudroomError(f"{MOST} connections go through the link to the other machine already")
            carried = self.carried[number] = CarriedSocket(number, connection, self._send, self._forget)
        carried.pump()
        return carried

    def handle(self, kind: Kind, number: int, body: bytes) -> None:
        """Take a message of the other machine about a connection. One that has ended here is no error."""
        carried = self.carried.get(number)
        if carried is not None:
            carried.handle(kind, body)

    def _forget(self, number: int) -> None:
        self.carried.pop(number, None)
        with self._lock:
            dial = self._dials.pop(number, None)
        if dial is not None:
            dial.answer(MudroomError("the connection was given up"))

    def close(self) -> None:
        """Cut all connections: the link has ended."""
        for number in list(self._dials):
            self.dialled(number, "the link to the other machine has ended")
        for carried in list(self.carried.values()):
            carried.end()
