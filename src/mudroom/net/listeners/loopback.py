"""Connections to a place on the command's own loopback that a rule opens: they go to this machine's loopback.

Rules of this file: the listener's place is the destination, whatever the client says; HTTP that names another host is
refused. Only the place itself is dialled, or, under a rule for ``localhost``, both of its addresses. Any protocol is
allowed where a rule names the port; a rule without ports is for HTTP and TLS, a rule for some requests only for HTTP.
"""

from __future__ import annotations

import asyncio

from mudroom.core.network.loopback import LoopbackPlace, is_partial
from mudroom.net.gate.exchange import Exchange, RefusedExchange, Unreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import Peer
from mudroom.net.listeners.tunnel import HandedConnection, serve_tunnel
from mudroom.net.protocol import client_hello, refusal

FIRST_BYTES = 2.0
"""Seconds until a refused client's first data, which shows whether it understands HTTP."""


async def serve_loopback(client: Peer, guard: Guard, place: LoopbackPlace) -> HandedConnection | None:
    """Serve the connection to its end. Plain HTTP is not served but returned, to be judged request by request."""
    exchange = Exchange(guard, "raw", *place)
    try:
        if is_partial(place, guard.rules):
            if await _is_http(client):
                return HandedConnection(exchange, None)
            raise exchange.refuse("its rules are for some HTTP requests only")
        await exchange.admit(client)
        server = await exchange.reach()
    except RefusedExchange as reason:
        await _decline(client, 403, refusal.denied(exchange.host, exchange.port, str(reason)))
        return None
    except Unreachable as reason:
        await _decline(client, reason.status, str(reason))
        return None
    return await serve_tunnel(client, server, exchange)


async def _is_http(client: Peer) -> bool:
    """Wait for the client's first bytes. Return whether they are an HTTP request."""
    try:
        async with asyncio.timeout(FIRST_BYTES):
            while (kind := client_hello.kind_of(bytes(client.buffer[: client_hello.LIMIT]))) is None:
                if not await client.more():
                    return False
    except TimeoutError:
        return False
    return kind == "http"


async def _decline(client: Peer, status: int, reason: str) -> None:
    """End a connection that leads nowhere: by an HTTP response if the client speaks HTTP, otherwise by a reset, which
    comes closest to a refused connection."""
    if await _is_http(client):
        await client.write(refusal.response(status, reason))
    else:
        client.reset()
