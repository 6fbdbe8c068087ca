"""Connect to an address that was vetted: to the address itself, never to a name.

Rules of this file: a connection that stands at once (this machine's, mostly) costs no turn of the loop.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence

from mudroom.core.network.address import show_address
from mudroom.net.gate.event_loop import WRITABLE, sockets
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.transport import SocketTransport

FIRST, LAST = 3.0, 15.0
"""Seconds for an address that others follow, and for the last one."""
_SOCK_NONBLOCK: int = getattr(socket, "SOCK_NONBLOCK", 0)
"""Of socket(2) on Linux; macOS has no such flag."""


async def dial(addresses: Sequence[bytes], port: int) -> tuple[Peer, str]:
    """Connect to the first address that answers, in this order. Return the peer and the address. Raise the OSError of
    the last one."""
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
    if connection.family != socket.AF_UNIX:  # the list of agents
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer = Peer()
    SocketTransport(connection, peer)
    return peer


async def _connect(packed: bytes, address: tuple[str, int], patience: float) -> Peer:
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    channel = socket.socket(family, socket.SOCK_STREAM | _SOCK_NONBLOCK)
    try:
        if not _SOCK_NONBLOCK:
            channel.setblocking(False)
        error = channel.connect_ex(address)
        if error == errno.EINPROGRESS:
            error = channel.connect_ex(address)  # of this machine: it stands by now
        if error == errno.EALREADY:
            async with asyncio.timeout(patience):
                await _writable(channel)
            error = channel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        # a tunnel may be idle; keepalive detects a dead peer
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return adopt(channel)
    except BaseException:
        channel.close()
        raise


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
