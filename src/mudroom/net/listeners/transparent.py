"""Connections from programs that do not know the proxy: their destination is the address that they connected to.

Rules of this file: an address in the synthetic ranges stands for the name that was looked up; the name in TLS or HTTP
must be the same. Any other address is a literal, and is judged as such.
"""

from __future__ import annotations

import socket
import struct

from mudroom.core.network.address import IPV4_MAPPED, show_address
from mudroom.net.gate.exchange import Exchange, RefusedExchange, Unreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import Peer
from mudroom.net.listeners.tunnel import HandedConnection, check_first_bytes, send_alert, serve_tunnel
from mudroom.net.protocol.synthetic import Synthetic, is_synthetic

FIRST_BYTES = 10.0
"""Seconds until the client's first data."""
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
    host = name or show_address(packed)
    exchange = Exchange(guard, "raw", host, port)
    if name is None and is_synthetic(packed):
        exchange.refuse("the address no longer stands for a name; look the name up again")
        return None
    try:
        kind = None
        if not exchange.is_named():
            kind = await check_first_bytes(client, exchange, FIRST_BYTES)
            if kind == "http":
                return HandedConnection(exchange, None)
            exchange.way = "tls"
        await exchange.admit(client)
        server = await exchange.reach()
    except (RefusedExchange, Unreachable):
        await send_alert(client)
        return None
    return await serve_tunnel(client, server, exchange, kind=kind)
