"""Connections of programs that know of no proxy: what they meant is where they connected to.

Rules of this file: an address of our synthetic ranges stands for the name that was looked up; what TLS or HTTP say must
be that name. Any other address is a literal, and judged as one.
"""

from __future__ import annotations

import socket
import struct

from mudroom.core.network.address import IPV4_MAPPED, show_address
from mudroom.net.entrances.tunnel import HandedConnection, first_words, speak, warn
from mudroom.net.gate.exchange import Exchange, RefusedExchange, Unreachable
from mudroom.net.gate.guard import DoorGuard
from mudroom.net.gate.peer import Peer
from mudroom.net.protocol.synthetic import Synthetic, is_synthetic

FIRST_WORDS = 10.0
"""Seconds."""
_ORIGINAL = 80
"""SO_ORIGINAL_DST of linux/netfilter_ipv4.h and IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h."""

Where = tuple[bytes, int]
"""A packed address and a port."""


def own_address(channel: socket.socket) -> Where:
    """What the program connected to, where every address is local. Raises OSError."""
    address, port = channel.getsockname()[:2]
    return _plain(socket.inet_pton(channel.family, address)), port


def original_destination(channel: socket.socket) -> Where:
    """What it was before nftables redirected it. Raises OSError if nothing did."""
    here, _port = own_address(channel)
    level, form = (socket.SOL_IP, "!2xH4s8x") if len(here) == 4 else (socket.IPPROTO_IPV6, "!2xH4x16s4x")
    port, packed = struct.unpack(form, channel.getsockopt(level, _ORIGINAL, struct.calcsize(form)))
    return _plain(packed), port


def _plain(packed: bytes) -> bytes:
    return packed[12:] if packed.startswith(IPV4_MAPPED) else packed


async def captured(client: Peer, guard: DoorGuard, names: Synthetic, where: Where) -> HandedConnection | None:
    """Serve it to its end. If it is plain HTTP it is not served: the rest is for whoever judges requests."""
    packed, port = where
    name = names.name(packed)
    host = name or show_address(packed)
    exchange = Exchange(guard, "raw", host, port)
    if name is None and is_synthetic(packed):
        exchange.refuse("the address stands for no name any more; look the name up again")
        return None
    try:
        kind = None
        if not exchange.is_named():
            kind = await first_words(client, exchange, FIRST_WORDS)
            if kind == "http":
                return HandedConnection(exchange, None)
            exchange.way = "tls"
        await exchange.admit(client)
        server = await exchange.reach()
    except (RefusedExchange, Unreachable):
        await warn(client)
        return None
    return await speak(client, server, exchange, kind=kind)
