"""Connections that the origin makes for commands: the worker's half.

The gate beside a command asks its host process for each connection that its rules allow
(``session/confinement/dialler.py``). The link asks the origin, which judges it once more, by its own rules and in its
own journal, and makes it. The gate gets one end of a socketpair; ``wire/tunnel.py`` moves the bytes.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

from mudroom.core.network.fork_host import label_of
from mudroom.errors import MudroomError
from mudroom.ext.fleet.wire.frame import Frame
from mudroom.ext.fleet.wire.message import DIAL, Dial, Dialled, frame_of, message_of
from mudroom.ext.fleet.wire.tunnel import MOST, Tunnels
from mudroom.session.confinement.dialler import DialledFork, ForkRefused, PendingConnection

WORD = "the origin"
"""The address that the journal has for such a connection."""
GONE = "the origin is gone"


class OriginConnection:
    """A connection that the origin is making. The lock of its ``OriginConnections`` guards it."""

    def __init__(self, number: int, forget: Callable[[int], None]) -> None:
        self.number, self._forget = number, forget
        self._pipe = os.pipe()
        self._connection: socket.socket | None = None
        self._error: MudroomError | None = None

    def fileno(self) -> int:
        return self._pipe[0]

    def settle(self, connection: socket.socket | None, error: MudroomError | None = None) -> None:
        self._connection, self._error = connection, error
        os.write(self._pipe[1], b"\0")

    def result(self) -> DialledFork:
        """Return the connection. Raise ForkRefused if the origin does not allow it, MudroomError with the reason if it
        cannot be made."""
        if self._error is not None:
            raise self._error
        if self._connection is None:
            raise MudroomError(GONE)
        return DialledFork(self._connection.detach(), WORD)

    def close(self) -> None:
        self._forget(self.number)
        for descriptor in self._pipe:
            os.close(descriptor)
        if self._connection is not None:
            self._connection.close()


class OriginConnections:
    """One link's connections. ``_lock`` guards all attributes."""

    def __init__(self, send: Callable[[Frame], None]) -> None:
        self._send = send
        self.tunnels = Tunnels(send)
        self._lock = threading.Lock()
        self._last = 0
        self._pending: dict[int, OriginConnection] = {}
        self._is_closed = False

    def begin(self, stream: int, caller: str, host: str, port: int) -> PendingConnection:
        """Return a connection that the origin is making for an errand. Raise MudroomError if it cannot be asked."""
        with self._lock:
            if self._is_closed:
                raise MudroomError(GONE)
            if len(self._pending) >= MOST:
                raise MudroomError(f"{MOST} connections are being made by the origin")
            self._last += 1
            pending = self._pending[self._last] = OriginConnection(self._last, self._drop)
        self._send(frame_of(DIAL, Dial(pending.number, host, port, b"", caller), stream))
        return pending

    def dialled(self, frame: Frame) -> None:
        """Take the origin's answer. One to a connection that was given up is late: it is closed."""
        answer = message_of(frame, Dialled)
        with self._lock:
            pending = self._pending.pop(answer.number, None)
            if pending is None:
                late = not answer.reason
            elif answer.reason:
                kind = ForkRefused if answer.is_refused else MudroomError
                pending.settle(None, kind(answer.reason[:500]))
                return
            else:
                late = False
                ours, theirs = socket.socketpair()
                if not self.tunnels.add(answer.number, ours):
                    theirs.close()
                    pending.settle(None, MudroomError(f"the link has {MOST} connections"))
                    late = True
                else:
                    pending.settle(theirs)
        if late:
            self.tunnels.refuse(answer.number)

    def close(self) -> None:
        """The origin is gone: nothing is connected any more."""
        with self._lock:
            self._is_closed = True
            pending, self._pending = list(self._pending.values()), {}
            for connection in pending:
                connection.settle(None, MudroomError(GONE))
        self.tunnels.close()

    def _drop(self, number: int) -> None:
        with self._lock:
            self._pending.pop(number, None)


class OriginDialler:
    """One command's dialler (``Dialler``)."""

    all_hosts = True

    def __init__(self, connections: OriginConnections, stream: int, fork: str) -> None:
        self._connections, self._stream, self._caller = connections, stream, label_of(fork)

    def begin(self, host: str, port: int, _path: str) -> PendingConnection:
        return self._connections.begin(self._stream, self._caller, host, port)

    def close(self) -> None:
        """Connections end with the gate's ends."""
