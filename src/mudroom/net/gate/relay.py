"""Relay bytes both ways until both ends have finished, or either is lost."""

from __future__ import annotations

import asyncio

from mudroom.net.gate.peer import Peer

LINGER = 60.0
"""Seconds for an end to receive the remaining bytes when the other is lost."""


async def relay(client: Peer, upstream: Peer) -> None:
    """Half-closes are passed on. There is no idle timeout."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    lingering: list[asyncio.TimerHandle] = []

    def finish() -> None:
        if not over.done():
            over.set_result(None)

    def lost() -> None:
        if client.lost and upstream.lost:
            finish()
        elif (client.lost or upstream.lost) and not lingering:
            lingering.append(loop.call_later(LINGER, finish))

    client.when_lost = upstream.when_lost = lost
    try:
        client.pass_to(upstream)
        upstream.pass_to(client)
        if client.ended and upstream.ended:
            client.end()
            upstream.end()
        lost()
        await over
    finally:
        for timer in lingering:
            timer.cancel()
        client.cut()
        upstream.cut()
