"""Sockets in running commands' network namespaces: one process for each namespace makes all its sockets.

The process (``SocketMaker``) is started at the first connection, and ends with the command whose namespace it is in.

Rules of this file:
1. A namespace is bound to the fork that had it when it was entered.
2. A host process that does not answer is not asked again for a while, because the caller attends to a command.
"""

from __future__ import annotations

import _thread
import errno
import os
import socket
import time
from collections.abc import Callable, Hashable

from mudroom.errors import MudroomError
from mudroom.session.confinement.namespace_listener import namespaces_at
from mudroom.session.confinement.socket_maker import SocketMaker

PATIENCE = 1.0
"""Seconds in which the host process of the other fork's command hands out its namespaces, and the new process enters
them."""
PAUSE = 5.0
"""Seconds until a host process that did not answer is asked again."""
MOST = 64
"""Most namespaces that have a process at the same time."""


class SocketPool:
    """``_makers`` and ``_silent`` are guarded by ``_lock``: several commands in a session connect."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._makers: dict[bytes, tuple[Hashable, SocketMaker]] = {}
        """By the path of the command's namespace listener: the fork that it is for, and the process."""
        self._silent: dict[bytes, float] = {}
        """By the same path: the time until which it is not asked again."""

    def make(self, listener: bytes, wanted: Hashable, identity: Callable[[], Hashable], family: bytes) -> socket.socket:
        """Return a non-blocking socket in the network namespace of the command behind a listener. ``wanted``: the fork
        that is meant; ``identity`` returns which fork has that path now. Raise OSError if no command is running there,
        MudroomError if another fork has taken the path meanwhile."""
        with self._lock:
            held = self._makers.get(listener)
            if held is not None and (held[0] != wanted or held[1].is_over):
                self._drop(listener)
                held = None
            if held is None:
                held = self._makers[listener] = wanted, self._enter(listener)
                if identity() != wanted:
                    self._drop(listener)
                    raise MudroomError("the fork was replaced meanwhile")
            try:
                return held[1].make(family)
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EMFILE, errno.ENFILE, errno.ENOBUFS):
                    self._drop(listener)  # the process has ended
                raise

    def _enter(self, listener: bytes) -> SocketMaker:
        if self._silent.get(listener, 0.0) > time.monotonic():
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        for path in list(self._makers):
            if len(self._makers) >= MOST or self._makers[path][1].is_over:
                self._drop(path)
        try:
            gone, namespaces = namespaces_at(listener, PATIENCE)
            try:
                return SocketMaker(gone, namespaces, PATIENCE)
            finally:
                for descriptor in (gone, *namespaces):
                    os.close(descriptor)
        except TimeoutError:
            self._silent = {path: until for path, until in self._silent.items() if until > time.monotonic()}
            self._silent[listener] = time.monotonic() + PAUSE
            raise

    def _drop(self, listener: bytes) -> None:
        self._makers.pop(listener)[1].close()

    def close(self) -> None:
        with self._lock:
            for listener in list(self._makers):
                self._drop(listener)
