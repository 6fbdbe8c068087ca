"""Relay bytes both ways until both ends have finished, or either is lost."""

from __future__ import annotations

import asyncio

from mudroom.net.gate.peer import Peer

LINGER = 60.0
"""Seconds for an end to receive the remaining bytes when the other is lost."""


async def relay(client: Peer, upstream: Peer) -> None:
    """Half-closes are passed on. There is no idle timeout."""
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
