"""A connection to a server that runs in another fork: made in its namespace, connected from outside."""

from __future__ import annotations

import errno
import os
import select
import socket

from mudroom.core.network.fork_rule import ForkIdentity
from mudroom.errors import MudroomError
from mudroom.ext.agents.links.fork_grants import identity_of
from mudroom.net.listeners.late_socket import LOOPBACKS
from mudroom.session.confinement.dialler import DialledFork, InnerSockets, PendingConnection
from mudroom.vault.store.fork import Fork

_SYN_RETRIES = 1
"""For TCP_SYNCNT (tcp(7)): a connection to a server whose queue is full fails after about 3 s."""


def connect_inside(
    pool: InnerSockets, fork: Fork, identity: ForkIdentity, port: int, place: str, made: DialledFork
) -> PendingConnection:
    """Return a connection to a port of the command that runs in a fork. ``identity``: the fork that is meant. ``made``:
    the result, without its descriptor. Raise MudroomError with the reason if there is none."""
    number = errno.ECONNREFUSED
    for family, address in LOOPBACKS:
        try:
            inner = pool.make(fork.namespace_listener, identity, lambda: identity_of(fork), family)
        except OSError as error:
            if family == LOOPBACKS[0][0]:
                raise MudroomError(
                    f"no command with a network of its own is running in the fork {fork.name}"
                ) from error
            break  # no IPv6 there
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, _SYN_RETRIES)
        error_number = inner.connect_ex((address, port))
        if error_number == errno.EINPROGRESS:
            error_number = inner.connect_ex((address, port))  # on loopback it is established by now, or was refused
        if error_number in (0, errno.EISCONN):
            return Standing(made._replace(descriptor=inner.detach()))
        if error_number in (errno.EALREADY, errno.EINPROGRESS):
            return Connecting(inner, place, made)
        inner.close()
        number = error_number
    raise MudroomError(f"{place}: {os.strerror(number).lower()}")


class Standing:
    """An established connection. Owner: the caller, until it has taken the result."""

    def __init__(self, made: DialledFork) -> None:
        self._made: DialledFork | None = made

    def fileno(self) -> int:
        return -1

    def result(self) -> DialledFork:
        assert self._made is not None
        made, self._made = self._made, None
        return made

    def close(self) -> None:
        if self._made is not None:
            os.close(self._made.descriptor)
            self._made = None


class Connecting:
    """A connection that a server has not accepted yet. The command's other work does not wait for it."""

    def __init__(self, inner: socket.socket, place: str, made: DialledFork) -> None:
        self._inner, self._place, self._made = inner, place, made
        self._writable = select.epoll()
        """Readable when the socket is writable: the watcher waits for readable descriptors (epoll(7))."""
        self._writable.register(inner.fileno(), select.EPOLLOUT)

    def fileno(self) -> int:
        return self._writable.fileno()

    def result(self) -> DialledFork:
        number = self._inner.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise MudroomError(f"{self._place}: {os.strerror(number).lower()}")
        return self._made._replace(descriptor=self._inner.detach())

    def close(self) -> None:
        self._writable.close()
        self._inner.close()
