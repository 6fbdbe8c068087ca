"""Bytes both ways until both ends have said all, or one is gone."""

from __future__ import annotations

import asyncio

from mudroom.net.gate.peer import Peer

LINGER = 60.0
"""Seconds for an end to take what is left when the other has gone."""


async def relay(client: Peer, upstream: Peer) -> None:
    """Half-closes are passed on. There is no time limit for silence."""
    try:
        client.pass_to(upstream)
        upstream.pass_to(client)
        if client.ended and upstream.ended:
            client.end()
            upstream.end()
        await asyncio.wait({client.closed, upstream.closed}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({client.closed, upstream.closed}, timeout=LINGER)
    finally:
        client.cut()
        upstream.cut()
