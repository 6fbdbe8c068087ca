"""Connect to an address that was vetted: to the address itself, never to a name.

Rules of this file: a connection that is established at once (mostly on this machine) costs no loop turn.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Sequence

from mudroom.core.network.address import show_address
from mudroom.core.system.closing import ClosedOnError
from mudroom.net.gate.event_loop import WRITABLE, sockets
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.transport import SocketTransport

FIRST, LAST = 3.0, 15.0
"""Seconds for an address that others follow, and for the last address."""
_SOCK_NONBLOCK: int = getattr(socket, "SOCK_NONBLOCK", 0)
"""Flag for socket(2) on Linux; macOS has no such flag."""
_BEGUN = errno.EWOULDBLOCK if sys.platform == "win32" else errno.EINPROGRESS
"""Error from a non-blocking connect(2) ("connect function", winsock2.h: WSAEWOULDBLOCK)."""


async def dial(addresses: Sequence[bytes], port: int) -> tuple[Peer, str]:
    """Connect to the first address that answers, in this order. Return the peer and the address. Raise the last
    address's OSError."""
    failure = OSError(errno.EADDRNOTAVAIL, "it has no address")
    for number, packed in enumerate(addresses):
        text = show_address(packed)
        try:
            return await _connect(packed, (text, port), LAST if number == len(addresses) - 1 else FIRST), text
        except TimeoutError:
            failure = OSError(errno.ETIMEDOUT, "connection timed out")
        except OSError as error:
            failure = error
    raise failure


def adopt(connection: socket.socket) -> Peer:
    """Return the peer at the other end of a connected, non-blocking socket, which the peer owns."""
    if connection.family in (socket.AF_INET, socket.AF_INET6):  # not a Unix socket: the list of agents
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer = Peer()
    SocketTransport(connection, peer)
    return peer


async def _connect(packed: bytes, address: tuple[str, int], patience: float) -> Peer:
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    channel = socket.socket(family, socket.SOCK_STREAM | _SOCK_NONBLOCK)
    with ClosedOnError(channel):
        if not _SOCK_NONBLOCK:
            channel.setblocking(False)
        error = channel.connect_ex(address)
        if error == _BEGUN:
            error = channel.connect_ex(address)  # on this machine it is established by now
        if error in (errno.EALREADY, _BEGUN):
            async with asyncio.timeout(patience):
                await _writable(channel)
            error = channel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error not in (0, errno.EISCONN):  # EISCONN: Windows, for an established connection
            raise OSError(error, error_text(error))
        # a tunnel may be idle; keepalive detects a dead peer
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return adopt(channel)


def error_text(error: int) -> str:
    """Return the text for a socket error; strerror(3) on Windows does not know these."""
    if sys.platform == "win32":
        table: dict[int, str] = socket.errorTab
        return table.get(error, f"error {error}").rstrip(".")
    return os.strerror(error)


async def _writable(channel: socket.socket) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    selector = sockets()

    def ready(_events: int) -> bool:
        if not future.done():
            future.set_result(None)
        return False

    selector.watch(channel.fileno(), WRITABLE, ready)
    try:
        await future
    finally:
        selector.forget(channel.fileno())
