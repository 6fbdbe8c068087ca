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
    """The first that answers, in this order, and which it was. Raises the OSError of the last one."""
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


async def _connect(packed: bytes, port: int) -> Peer:
    """An address in its usual form is taken as it is by both event loops: nothing is looked up."""
    transport, peer = await asyncio.get_running_loop().create_connection(Peer, show_address(packed), port)
    descriptor = transport.get_extra_info("socket").fileno()
    with socket.socket(fileno=os.dup(descriptor)) as channel:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a tunnel may be idle; a peer that is gone not
    return peer
