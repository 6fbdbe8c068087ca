"""Sockets in running commands' network namespaces: one process for each namespace makes all its sockets.

A socket belongs to the namespace in which it was made, and can be connected from outside (``late_socket.py``). The
process is started at the first connection, and ends with the command whose namespace it is in.

Rules of this file:
1. A namespace is bound to the fork that had it when it was entered.
2. A host process that does not answer is not asked again for a while, because the caller attends to a command.
"""

from __future__ import annotations

import _thread
import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Hashable

from mudroom.errors import MudroomError
from mudroom.net.listeners.late_listener import enter
from mudroom.session.confinement.namespace_listener import namespaces_at
from mudroom.session.confinement.namespace_program import start

FAMILIES = {b"4": socket.AF_INET, b"6": socket.AF_INET6}
READY = b"ready"


def main() -> None:
    """Send READY, or an error number. Then send a socket in the requested family for each request, or the error
    number."""
    host = socket.socket(fileno=os.dup(0))
    error = enter(1, 2)
    host.send(b"%d" % error if error else READY)
    if error:
        return
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    poller = select.poll()
    poller.register(host, select.POLLIN)
    poller.register(3, select.POLLIN)
    while True:
        ready = dict(poller.poll())
        request = host.recv(16) if host.fileno() in ready else b""
        if 3 in ready or not request:
            return
        try:
            with socket.socket(FAMILIES[request], socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as made:
                socket.send_fds(host, [b"0"], [made.fileno()])
        except OSError as failure:
            host.send(b"%d" % (failure.errno or 0))


PATIENCE = 1.0
"""Seconds in which the host process of the other fork's command hands out its namespaces, and the new process enters
them."""
PAUSE = 5.0
"""Seconds until a host process that did not answer is asked again."""
AHEAD = b"4"
"""The family that is requested ahead."""
MOST = 64
"""Most namespaces that have a process at the same time."""


class _Maker:
    """A process in a command's namespaces. Guarded by its pool's lock."""

    def __init__(self, listener: bytes) -> None:
        """Raise OSError if no command is running there, or its namespaces cannot be entered."""
        self._gone, namespaces = namespaces_at(listener, PATIENCE)
        try:
            self._pid, self._channel = start("mudroom.ext.agents.links.socket_pool", [], (*namespaces, self._gone))
        except OSError:
            os.close(self._gone)
            raise
        finally:
            for descriptor in namespaces:
                os.close(descriptor)
        self._channel.settimeout(PATIENCE)
        self._is_ahead = False
        """Whether a socket in the family AHEAD was requested and not yet received: it is made while the previous socket
        is in use."""
        self._spare: socket.socket | None = None
        try:
            reply = self._channel.recv(16)
        except OSError:
            reply = b""
        if reply != READY:
            self.close()
            number = int(reply) if reply.isdigit() else errno.ETIMEDOUT
            raise OSError(number, os.strerror(number))

    @property
    def is_over(self) -> bool:
        poller = select.poll()
        poller.register(self._gone, select.POLLIN)
        return bool(poller.poll(0))

    def make(self, family: bytes) -> socket.socket:
        if family != AHEAD:
            self._spare = self._spare or (self._receive() if self._is_ahead else None)
            self._channel.send(family)
            return self._receive()
        made, self._spare = self._spare, None
        if made is None:
            if not self._is_ahead:
                self._channel.send(AHEAD)
            made = self._receive()
        try:
            self._channel.send(AHEAD)
            self._is_ahead = True
        except OSError:
            pass  # the command ends just now; the next call says so
        return made

    def _receive(self) -> socket.socket:
        self._is_ahead = False
        reply, descriptors, _flags, _address = socket.recv_fds(self._channel, 16, 1)
        if not descriptors:
            number = int(reply) if reply.isdigit() else errno.ECONNRESET
            raise OSError(number, os.strerror(number))
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        if self._spare is not None:
            self._spare.close()
        self._channel.close()
        os.close(self._gone)
        os.kill(self._pid, signal.SIGKILL)  # not waited for yet, so the number is still its own
        os.waitpid(self._pid, 0)


class SocketPool:
    """``_makers`` and ``_silent`` are guarded by ``_lock``: several commands in a session connect."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._makers: dict[bytes, tuple[Hashable, _Maker]] = {}
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

    def _enter(self, listener: bytes) -> _Maker:
        if self._silent.get(listener, 0.0) > time.monotonic():
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        for path in list(self._makers):
            if len(self._makers) >= MOST or self._makers[path][1].is_over:
                self._drop(path)
        try:
            return _Maker(listener)
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
