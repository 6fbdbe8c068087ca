"""Connections from programs that do not know the proxy: their destination is the address that they connected to.

Rules of this file:

- An address in the synthetic ranges stands for the name that was looked up; the name in TLS or HTTP must be the same.
  Any other address is a literal, and is judged as such.
- A place on the command's own loopback that a rule opens leads to this machine's loopback: to the place itself, or,
  under a rule for ``localhost``, to both of its addresses.
- Where a rule tells requests apart, HTTP is judged request by request; any other protocol is judged as a whole.
- A refused client gets the reason as far as its protocol carries it: an HTTP response, also within TLS where the
  sandbox trusts the vault's authority, or an alert. Any other connection is reset.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from mudroom.core.network.address import IPV4_MAPPED, show_address
from mudroom.core.network.fork_host import is_fork_host
from mudroom.core.network.host_rules import Request, concerns
from mudroom.core.network.loopback import LoopbackPlace, is_partial
from mudroom.net.gate.exchange import Exchange, RefusedExchange, Unreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.inspector import inspector_of
from mudroom.net.gate.peer import Peer
from mudroom.net.listeners.tunnel import HandedConnection, check_first_bytes, serve_tunnel
from mudroom.net.protocol import client_hello, refusal
from mudroom.net.protocol.synthetic import Synthetic, is_synthetic

FIRST_BYTES = 10.0
"""Seconds until the client's first data."""
REFUSED_BYTES = 2.0
"""Seconds until a refused client's first data, which shows how it can be told."""
_ORIGINAL = 80
"""SO_ORIGINAL_DST (linux/netfilter_ipv4.h) and IP6T_SO_ORIGINAL_DST (linux/netfilter_ipv6/ip6_tables.h)."""

Destination = tuple[bytes, int]
"""A packed address and a port."""


def own_address(channel: socket.socket) -> Destination:
    """Return the address that the program connected to, where every address is local. Raise OSError."""
    address, port = channel.getsockname()[:2]
    return _plain(socket.inet_pton(channel.family, address)), port


def original_destination(channel: socket.socket) -> Destination:
    """Return the destination before nftables redirected the connection. Raise OSError if it was not redirected."""
    address, _port = own_address(channel)
    level, form = (socket.SOL_IP, "!2xH4s8x") if len(address) == 4 else (socket.IPPROTO_IPV6, "!2xH4x16s4x")
    port, packed = struct.unpack(form, channel.getsockopt(level, _ORIGINAL, struct.calcsize(form)))
    return _plain(packed), port


def _plain(packed: bytes) -> bytes:
    return packed[12:] if packed.startswith(IPV4_MAPPED) else packed


async def serve_transparent(
    client: Peer, guard: Guard, names: Synthetic, where: Destination
) -> HandedConnection | None:
    """Serve the connection to its end. Plain HTTP is not served but returned, to be judged request by request."""
    packed, port = where
    name = names.name(packed)
    exchange = Exchange(guard, "raw", name or show_address(packed), port)
    if name is None and is_synthetic(packed):
        reason = exchange.refuse("the address no longer stands for a name; look the name up again")
        await _decline(client, exchange, 403, str(reason))
        return None
    return await _serve(client, exchange)


async def serve_loopback(client: Peer, guard: Guard, place: LoopbackPlace) -> HandedConnection | None:
    """As ``serve_transparent``, at a place on the command's own loopback."""
    return await _serve(client, Exchange(guard, "raw", *place))


async def _serve(client: Peer, exchange: Exchange) -> HandedConnection | None:
    begins, kind = None, None
    try:
        if not exchange.is_named():
            begins = kind = await check_first_bytes(client, exchange, FIRST_BYTES)
        elif _needs_first_bytes(exchange):
            begins = await _begins(client)
            kind = begins if begins == "http" else None
            if kind is None and not exchange.is_inspected and is_partial(_place(exchange), exchange.guard.rules):
                raise exchange.refuse("its rules are for some HTTP requests only")
        if kind == "http":
            return HandedConnection(exchange, None)
        await exchange.admit(client)
        server = await exchange.reach()
    except RefusedExchange as reason:
        text = refusal.denied(exchange.host, exchange.port, str(reason))
        await _decline(client, exchange, 403, text, begins)
        return None
    except Unreachable as reason:
        await _decline(client, exchange, reason.status, str(reason), begins)
        return None
    return await serve_tunnel(client, server, exchange, kind=kind)


def _place(exchange: Exchange) -> LoopbackPlace:
    return LoopbackPlace(exchange.host, exchange.port)


def _needs_first_bytes(exchange: Exchange) -> bool:
    """Return whether HTTP is judged otherwise than the connection, here or by the host, or told its refusal
    otherwise."""
    guard, host, port = exchange.guard, exchange.host, exchange.port
    return (
        guard.all_hosts
        or is_fork_host(host)
        or guard.look(Request(host, port)).action == "deny"
        or any((rule.methods or rule.paths) and concerns(rule, host, port) for rule in guard.rules)
    )


async def _begins(client: Peer) -> client_hello.Kind:
    """Return the protocol that the client begins with; ``raw`` if it waits for the server."""
    try:
        async with asyncio.timeout(REFUSED_BYTES):
            while (kind := client_hello.kind_of(bytes(client.buffer[: client_hello.LIMIT]))) is None:
                if not await client.more():
                    return "raw"
    except TimeoutError:
        return "raw"
    return kind


async def _decline(
    client: Peer, exchange: Exchange, status: int, reason: str, begins: client_hello.Kind | None = None
) -> None:
    client.account.waits()
    kind = begins or await _begins(client)
    if kind == "http":
        await client.write(refusal.response(status, reason))
        return
    inspector = inspector_of(exchange.guard)
    if kind == "tls" and (inspector is None or not await inspector.decline(client, exchange, status, reason)):
        await client.write(refusal.ALERT)
    elif kind != "tls":
        client.reset()  # comes closest to a refused connection
