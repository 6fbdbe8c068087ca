"""The listener that leads to a running command's servers: ``mudroom net open``, connections between forks."""

from __future__ import annotations

import _socket
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from mudroom.core.system import rights
from mudroom.errors import MudroomError
from mudroom.typing import Any
from mudroom.vault.socket_path import short_path

_SOCK_SEQPACKET = _socket.SOCK_SEQPACKET
_PATIENCE = 20.0
"""Seconds for ``mudroom net open`` to enter a command's namespaces: it serves nothing else meanwhile."""


class NamespaceListener:
    """A socket in the vault that hands a running command's namespaces to the same user's processes, which can then
    connect to servers inside. Only the user can enter the vault's directory, and it is hidden from every command.

    Owner: the thread that attends to the command.
    """

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._socket: _socket.socket | None = None
        self._visitors: list[_socket.socket] = []
        """Connected processes. The connection's end tells the process that the command has ended."""

    def descriptors(self) -> list[int]:
        return [] if self._socket is None else [self._socket.fileno()]

    def open(self) -> None:
        """Open the socket. Raise OSError on failure, with the socket closed."""
        listener = _socket.socket(_socket.AF_UNIX, _SOCK_SEQPACKET)
        try:
            listener.setblocking(False)
            with short_path(self._path) as path:
                try:
                    listener.bind(path)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
                    os.unlink(path)  # left by a command that was killed with its host process
                    listener.bind(path)
            listener.listen()
        except OSError:
            listener.close()
            raise
        self._socket = listener

    def admit(self, namespaces: Sequence[int]) -> None:
        assert self._socket is not None
        try:
            listening: Any = self._socket  # the type stub lacks ``_accept``
            accepted, _address = listening._accept()
        except BlockingIOError:
            return  # the process has gone
        peer = _socket.socket(fileno=accepted)
        self._forget_gone()
        try:
            rights.send(peer, b"namespaces", namespaces)
            self._visitors.append(peer)
        except OSError:
            peer.close()  # the process has gone

    def _forget_gone(self) -> None:
        """Close the connections to processes that have gone: a long command has many visitors."""
        for visitor in list(self._visitors):
            try:
                visitor.setblocking(False)
                is_gone = not visitor.recv(1)
            except BlockingIOError:
                is_gone = False
            except OSError:
                is_gone = True
            if is_gone:
                visitor.close()
                self._visitors.remove(visitor)

    def close(self) -> None:
        while self._visitors:
            self._visitors.pop().close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with short_path(self._path) as path, suppress(FileNotFoundError):
                os.unlink(path)


def namespaces_at(path: bytes, patience: float | None = None) -> tuple[int, list[int]]:
    """Return a descriptor that reaches end of file when the listener's command has ended, and the descriptors of the
    command's user and network namespaces. The caller closes all three. Raise OSError if no command is running, or its
    host process does not answer within ``patience`` seconds (None: no limit)."""
    with closing(_socket.socket(_socket.AF_UNIX, _SOCK_SEQPACKET)) as asking:
        asking.settimeout(patience)
        with short_path(path) as short:
            asking.connect(short)
        _data, namespaces, _is_cut = rights.receive(asking, 64, 2)
        if len(namespaces) != 2:
            raise ConnectionResetError("the command has just ended")
        return asking.detach(), namespaces


def ports_behind(path: bytes, patience: float | None = None) -> tuple[int, ...]:
    """Return the ports that the processes of the listener's command listen on. Raise OSError as ``namespaces_at``
    does."""
    from mudroom.sandbox.host.processes import served_ports

    gone, namespaces = namespaces_at(path, patience)
    try:
        return served_ports(namespaces[1])
    finally:
        for descriptor in (gone, *namespaces):
            os.close(descriptor)


def show_inside(
    namespaces: Sequence[int],
    gone: int,
    inside: int,
    outside: Sequence[int],
    opened: Callable[[int], None],
    refused: Callable[[str], None] | None,
) -> None:
    """Serve a command's port ``inside`` (``namespaces_at``) on the host's loopback until the command ends: on the first
    of the ports ``outside`` that is free; 0 is any. ``opened`` is called with the port. ``refused`` is called with a
    description of whose connection was refused; None: serve connections from all users on the machine. Raise
    MudroomError if no port is free, or the namespaces cannot be entered."""
    from mudroom.net.listeners.inbound import InboundListener
    from mudroom.session.confinement.socket_maker import SocketMaker

    try:
        maker = SocketMaker(gone, namespaces, _PATIENCE)
    except OSError as error:
        raise MudroomError(
            f"the command's network cannot be entered: {error.strerror}", "mudroom ps shows whether it runs"
        ) from error
    with closing(maker):
        InboundListener(maker.make, inside, outside, refused).run(gone, opened)
