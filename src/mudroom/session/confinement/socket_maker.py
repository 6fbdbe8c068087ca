"""Sockets in a running command's network namespace, from a process that is in it (``net/listeners/late_socket.py``)."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress

from mudroom.core.system import rights
from mudroom.net.listeners.late_socket import READY
from mudroom.sandbox.client.connection import wait_readable
from mudroom.session.confinement.namespace_program import start

AHEAD = b"4"
"""The family that is requested ahead."""


class SocketMaker:
    """A process in a command's namespaces. Owner: one thread, or the holder of a lock."""

    def __init__(self, gone: int, namespaces: Sequence[int], patience: float) -> None:
        """Take the descriptors from ``namespaces_at``; the caller closes them. ``patience``: seconds in which the
        process enters the namespaces, and makes a socket. Raise OSError if the namespaces cannot be entered."""
        self._pid, self._channel = start("mudroom.net.listeners.late_socket", [], (*namespaces, gone))
        self._channel.settimeout(patience)
        self._gone = os.dup(gone)
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
        """Whether the command has ended."""
        return bool(wait_readable((self._gone,), 0.0))

    def make(self, family: bytes) -> socket.socket:
        """Return a non-blocking socket. ``family``: a key of ``FAMILIES``. Raise OSError, with EAFNOSUPPORT if the
        namespace does not have that family."""
        if family != AHEAD:
            self._spare = self._spare or (self._receive() if self._is_ahead else None)
            self._channel.send(family)
            return self._receive()
        made, self._spare = self._spare, None
        if made is None:
            if not self._is_ahead:
                self._channel.send(AHEAD)
            made = self._receive()
        with suppress(OSError):  # the command ends just now; the next call says so
            self._channel.send(AHEAD)
            self._is_ahead = True
        return made

    def _receive(self) -> socket.socket:
        self._is_ahead = False
        reply, descriptors, _is_cut = rights.receive(self._channel, 16, 1)
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
