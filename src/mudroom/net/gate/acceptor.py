"""Accept a listener's connections.

Rules of this file: one connection for each report, so a crowd at one listener does not keep the others waiting. A
connection is read at once: most clients speak first, and their first bytes are there by then.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from mudroom.net.gate.event_loop import READABLE, sockets
from mudroom.net.gate.transport import SocketTransport

_RETRY = 1.0
"""Seconds before a process without free descriptors or memory accepts again."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_GONE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM)
"""Errors that concern the connection, not the listener: accept(2)."""


class Acceptor:
    """Owns a listening, non-blocking socket. ``protocol`` returns the protocol for a new connection."""

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._protocol = protocol
        self._sockets = sockets()
        self._is_watched = False
        # accepted sockets inherit it (net/ipv4/tcp_minisocks.c): small pieces must not wait for each other
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def _watch(self) -> None:
        if self._listener.fileno() >= 0:
            self._is_watched = True
            self._sockets.watch(self._listener.fileno(), READABLE, self._accept)

    def _pause(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._sockets.forget(self._listener.fileno())

    def _accept(self, _events: int) -> bool:
        try:
            channel, _address = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _SCARCE:
                self._pause()
                asyncio.get_running_loop().call_later(_RETRY, self._watch)
            elif error.errno not in _GONE:
                self._pause()  # the host has shut the listener down
            return False
        channel.setblocking(False)
        SocketTransport(channel, self._protocol()).receive()
        return False

    def close(self) -> None:
        self._pause()
        self._listener.close()
