"""Connect to an address that was vetted: to the address itself, never to a name."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence

from mudroom.core.network.address import show_address
from mudroom.net.gate.peer import Peer

FIRST, LAST = 3.0, 15.0
"""Seconds for an address that others follow, and for the last one."""


async def dial(addresses: Sequence[bytes], port: int) -> tuple[Peer, str]:
    """Connect to the first address that answers, in this order. Return the peer and the address. Raise the OSError of
    the last one."""
    failure = OSError(errno.EADDRNOTAVAIL, "it has no address")
    for number, packed in enumerate(addresses):
        last = number == len(addresses) - 1
        try:
            async with asyncio.timeout(LAST if last else FIRST):
                return await _connect(packed, port), show_address(packed)
        except TimeoutError:
            failure = OSError(errno.ETIMEDOUT, "connection timed out")
        except OSError as error:
            failure = error
    raise failure


async def adopt(connection: socket.socket) -> Peer:
    """Return the peer at the other end of a connected, non-blocking socket, which the peer owns."""
    _transport, peer = await asyncio.get_running_loop().create_connection(Peer, sock=connection)
    return peer


async def _connect(packed: bytes, port: int) -> Peer:
    """Connect without a lookup: both event loops take a literal address as it is."""
    transport, peer = await asyncio.get_running_loop().create_connection(Peer, show_address(packed), port)
    descriptor = transport.get_extra_info("socket").fileno()
    with socket.socket(fileno=os.dup(descriptor)) as channel:
        # a tunnel may be idle; keepalive detects a dead peer
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return peer
