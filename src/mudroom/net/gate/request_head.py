"""Read the next request's head, with limits on time and length."""

from __future__ import annotations

import asyncio

from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.protocol.head import END, LIMIT, BadHead, RequestHead, parse_head

HEAD_TIME = 10.0
"""Seconds for a head, from its first byte on."""
IDLE = 600.0
"""Seconds between two requests."""


async def read_head(client: Peer, patience: float) -> RequestHead | None:
    """Return the head, or None if the client ends or sends no byte within ``patience`` seconds. Raise BadHead,
    PeerGone."""
    client.account.waits()
    try:
        if not client.buffer:
            async with asyncio.timeout(patience):
                if not await client.more():
                    return None
    except TimeoutError:
        return None
    end = client.buffer.find(END)
    if end < 0:
        end = await _wait_for_end(client)
    if not 0 <= end <= LIMIT:
        raise BadHead(f"the head is longer than {LIMIT} bytes", 431)
    return parse_head(client.take(end + len(END)))


async def _wait_for_end(client: Peer) -> int:
    """Return the head's end position, or -1 if it is too long. Raise BadHead, PeerGone."""
    try:
        async with asyncio.timeout(HEAD_TIME):
            while (end := client.buffer.find(END)) < 0 and len(client.buffer) <= LIMIT:
                if not await client.more():
                    raise PeerGone("it ended within a head")
            return end
    except TimeoutError:
        raise BadHead(f"the head did not come within {HEAD_TIME:.0f} s", 408) from None
