"""A tunnel to one host: what goes through it must be for that host.

Rules of this file: port 443 is TLS; port 80 is HTTP, which is judged request by request, or TLS. Where a rule names the
port anything may be spoken, so, too, on every other port, which is open only because a rule or an answer named it; but
if it is TLS or HTTP it is held to the same. TLS names the host it was let through for (no name at all only for an
address), or it is refused: that a server answers for others, too (domain fronting), is no way round the rules.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from mudroom.core.network.host import parse_host
from mudroom.net.gate.exchange import Exchange, RefusedExchange
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.relay import relay
from mudroom.net.protocol import client_hello, refusal

FIRST_WORDS = 5.0
"""Seconds for what a tunnel begins with."""


class HandedConnection(NamedTuple):
    """What turned out to be plain HTTP, for whoever judges requests: their flows stand for this exchange."""

    exchange: Exchange
    server: Peer | None


async def first_words(client: Peer, exchange: Exchange, seconds: float) -> client_hello.Kind:
    """On a port that nothing named: what the client begins with. Raises Refused, having told it, if that may not be."""
    try:
        async with asyncio.timeout(seconds):
            while (
                kind := client_hello.kind_of(bytes(client.buffer[: client_hello.LIMIT]))
            ) is None and await client.more():
                pass
            if kind == "tls":
                await _check_name(client, exchange)
    except TimeoutError:
        raise exchange.refuse(f"the client said nothing, or not all of it, for {seconds:.0f} s") from None
    if kind is None or kind == "raw" or (kind == "http" and exchange.port != 80):
        wanted = "TLS" if exchange.port == 443 else "HTTP or TLS"
        raise exchange.refuse(f"what goes to port {exchange.port} must be {wanted}")
    return kind


async def free_words(client: Peer, server: Peer, exchange: Exchange) -> client_hello.Kind:
    """On a port that was named: as above, but the server may speak first, and anything may be said."""
    try:
        async with asyncio.timeout(None) as limit:
            while (kind := client_hello.kind_of(bytes(client.buffer[: client_hello.LIMIT]))) is None:
                if client.buffer and limit.when() is None:
                    limit.reschedule(asyncio.get_running_loop().time() + FIRST_WORDS)
                if not await _either(client, server):
                    return "raw"
    except TimeoutError:
        return "raw"
    if kind == "tls":
        try:
            async with asyncio.timeout(FIRST_WORDS):
                await _check_name(client, exchange)
        except TimeoutError:
            raise exchange.refuse("the client began a TLS handshake and did not go on") from None
    return kind


async def _either(client: Peer, server: Peer) -> bool:
    """Wait until the client says more; False if the server was first, or one of them is at its end."""
    if server.buffer or server.ended or client.ended:
        return False
    await asyncio.wait({client.news(), server.news()}, return_when=asyncio.FIRST_COMPLETED)
    return not server.buffer and not server.ended and not client.ended


async def _check_name(client: Peer, exchange: Exchange) -> None:
    """Wait for the whole ClientHello. Raises Refused if its name is not the host's."""
    why = ""
    if exchange.way == "raw":
        exchange.way = "tls"
    try:
        while (said := client_hello.parse_hello(bytes(client.buffer[: 2 * client_hello.LIMIT]))) is None:
            if not await client.more():
                raise ValueError("it ended within the ClientHello")
        why = _mismatch(said.name, exchange.host)
    except ValueError as error:
        why = str(error)
    if why:
        raise exchange.refuse(f"TLS: {why}")


def _mismatch(name: bytes | None, host: str) -> str:
    if name is None:
        kind = parse_host(host.encode()).kind
        return "" if kind != "name" else f"the client does not say that it wants {host} (no SNI)"
    said = parse_host(name).text
    return "" if said == host else f"the client wants {said}, and not {host}"


async def speak(
    client: Peer, server: Peer, exchange: Exchange, greeting: bytes = b"", kind: client_hello.Kind | None = None
) -> HandedConnection | None:
    """From the moment on when both sides can talk, to the end of it. ``greeting``: tells the client that moment.
    ``kind``: what the client begins with, if that is known."""
    handed = False
    exchange.begin()
    try:
        if greeting:
            await client.write(greeting)
        if kind is None and not exchange.is_named():
            kind = await first_words(client, exchange, FIRST_WORDS)
        elif kind is None:
            kind = await free_words(client, server, exchange)
        if kind == "http":
            handed = True
            exchange.drop()
            return HandedConnection(exchange, server)
        if exchange.is_inspected:
            from mudroom.net.inspection.inspect import inspect  # TLS, h11 and h2: at the first need

            await inspect(client, server, exchange, kind)
            return None
        await _carry(client, server, exchange)
    except RefusedExchange:
        await warn(client)
    finally:
        if not handed:
            exchange.error = exchange.error or "the client ended, or was cut, before it began"
            exchange.tell()
            server.cut()
    return None


async def warn(client: Peer) -> None:
    """Tell a client of TLS that it is refused."""
    if client.buffer[:1] == b"\x16":
        await client.write(refusal.ALERT)


async def _carry(client: Peer, server: Peer, exchange: Exchange) -> None:
    """Pass on what is said, both ways, to the end of it; then tell the flow."""
    sent, received = client.count - len(client.buffer), server.count - len(server.buffer)
    try:
        await relay(client, server)
    finally:
        exchange.sent, exchange.received = client.count - sent, server.count - received
        exchange.error = server.error
        exchange.tell()
