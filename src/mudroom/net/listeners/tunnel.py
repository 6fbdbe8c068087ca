"""A tunnel to one host: its content must be for that host.

Rules of this file:

- Port 443 is TLS; port 80 is HTTP, which is judged request by request, or TLS.
- Where a rule names the port, any protocol is allowed; so, too, on every other port, which is open only because a rule
  or an answer named it. TLS and HTTP are held to the same rules there.
- TLS must name the host that the tunnel was allowed for, or it is refused: a server that answers for other names, too
  (domain fronting), must not be a way around the rules. A missing name is allowed only for an address.
"""

from __future__ import annotations

import asyncio

from mudroom.core.network.host import parse_host
from mudroom.core.network.host_pattern import LOCALHOST, LOCALHOST_ADDRESSES
from mudroom.core.registry import part_or_none
from mudroom.net.gate.exchange import Exchange, RefusedExchange
from mudroom.net.gate.guard import NO_INSPECTOR
from mudroom.net.gate.inspector import inspector_of
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.relay import relay
from mudroom.net.protocol import client_hello, refusal
from mudroom.typing import NamedTuple

FIRST_BYTES = 5.0
"""Seconds for a tunnel's first bytes."""


class HandedConnection(NamedTuple):
    """A connection that turned out to be plain HTTP. Its requests are judged one by one; their flows replace this
    exchange's."""

    exchange: Exchange
    server: Peer | None


async def check_first_bytes(client: Peer, exchange: Exchange, seconds: float) -> client_hello.Kind:
    """Return the protocol that the client begins with, on a port that no rule names. Raise RefusedExchange, after
    reporting it, if the protocol is not allowed there."""
    try:
        async with asyncio.timeout(seconds):
            while (
                kind := client_hello.kind_of(bytes(client.buffer[: client_hello.LIMIT]))
            ) is None and await client.more():
                pass
            if kind == "tls":
                await _check_name(client, exchange)
    except TimeoutError:
        raise exchange.refuse(f"the client sent no complete first message within {seconds:.0f} s") from None
    if kind is None or kind == "raw" or (kind == "http" and exchange.port != 80):
        expected = "TLS" if exchange.port == 443 else "HTTP or TLS"
        raise exchange.refuse(f"traffic to port {exchange.port} must be {expected}")
    return kind


async def check_any_bytes(client: Peer, server: Peer, exchange: Exchange) -> client_hello.Kind:
    """Return the protocol that the client begins with, on a port that a rule names: the server may speak first, and any
    protocol is allowed."""
    loop, limit = asyncio.get_running_loop(), None
    try:
        while (kind := client_hello.kind_of(bytes(client.buffer[: client_hello.LIMIT]))) is None:
            if server.buffer or server.ended or client.ended:  # checked again: they can come with the last bytes
                return "raw"
            if limit is None and not client.buffer:
                await client.news_with(server)
                continue
            limit = limit or loop.time() + FIRST_BYTES
            async with asyncio.timeout_at(limit):
                await client.news_with(server)
    except TimeoutError:
        # it begins like a request, which could be sent slowly to be taken for another protocol
        raise exchange.refuse("the client did not complete its first line in time") from None
    if kind == "tls":
        try:
            async with asyncio.timeout(FIRST_BYTES):
                await _check_name(client, exchange)
        except TimeoutError:
            raise exchange.refuse("the client did not complete its ClientHello in time") from None
    return kind


async def _check_name(client: Peer, exchange: Exchange) -> None:
    """Wait for the whole ClientHello. Raise RefusedExchange if its name is not the exchange's host."""
    reason = ""
    if exchange.way == "raw":
        exchange.way = "tls"
    try:
        while (hello := client_hello.parse_hello(bytes(client.buffer[: 2 * client_hello.LIMIT]))) is None:
            if not await client.more():
                raise ValueError("it ended within the ClientHello")
        reason = _mismatch(hello.name, exchange.host)
        if not reason and hello.name is not None:
            exchange.named = parse_host(hello.name).text
    except ValueError as error:
        reason = str(error)
    if reason:
        raise exchange.refuse(f"TLS: {reason}")


def _mismatch(name: bytes | None, host: str) -> str:
    if name is None:
        kind = parse_host(host.encode()).kind
        return "" if kind != "name" else f"the client does not say that it wants {host} (no SNI)"
    sent = parse_host(name).text
    if sent == LOCALHOST and host in LOCALHOST_ADDRESSES:
        return ""
    return "" if sent == host else f"the client wants {sent}, and not {host}"


async def serve_tunnel(
    client: Peer, server: Peer, exchange: Exchange, greeting: bytes = b"", kind: client_hello.Kind | None = None
) -> HandedConnection | None:
    """Serve a connected tunnel to its end. ``greeting`` is sent to the client first. ``kind``: the client's protocol,
    if already known."""
    handed = False
    exchange.begin()
    try:
        if greeting:
            await client.write(greeting)
        if kind is None and not exchange.is_named():
            kind = await check_first_bytes(client, exchange, FIRST_BYTES)
        elif kind is None:
            kind = await check_any_bytes(client, server, exchange)
        if kind == "http":
            handed = True
            exchange.drop()
            return HandedConnection(exchange, server)
        if exchange.http_only:
            raise exchange.refuse("the other fork shows this port for plain HTTP/1 only")
        if exchange.is_inspected:
            inspector = inspector_of(exchange.guard)
            if inspector is None:
                raise exchange.refuse(NO_INSPECTOR)
            effects = part_or_none("effects", "servers") if kind == "raw" and exchange.holding is not None else None
            if effects is not None:
                await effects.serve_other(client, server, exchange)
                return None
            await inspector.inspect(client, server, exchange, kind)
            return None
        await _relay(client, server, exchange)
    except RefusedExchange:
        await send_alert(client)
    finally:
        if not handed:
            exchange.error = exchange.error or "the client ended, or was cut, before it began"
            exchange.report()
            server.cut()
    return None


async def send_alert(client: Peer) -> None:
    """Send a TLS alert if the client began with TLS."""
    if client.buffer[:1] == b"\x16":
        await client.write(refusal.ALERT)


async def _relay(client: Peer, server: Peer, exchange: Exchange) -> None:
    """Relay both ways to the end, then report the flow."""
    sent, received = client.count - len(client.buffer), server.count - len(server.buffer)
    try:
        await relay(client, server)
    finally:
        exchange.sent, exchange.received = client.count - sent, server.count - received
        exchange.error = server.error
        exchange.report()
