"""Serve a listener's connections, by the listener's kind."""

from __future__ import annotations

import asyncio
import errno
import functools
import hmac
import socket
import struct
from collections.abc import Callable, Coroutine

from mudroom.core.network.address import IPV4_MAPPED, show_address
from mudroom.core.network.fork_host import is_fork_host
from mudroom.core.network.host import Authority, parse_authority, parse_host
from mudroom.core.network.host_rules import Request, concerns
from mudroom.core.network.loopback import LoopbackPlace, is_partial
from mudroom.core.tree.path import show
from mudroom.net.gate.exchange import Exchange, RefusedExchange, Unreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.http import Link, serve_http
from mudroom.net.gate.inspector import inspector_of
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.request_head import read_head
from mudroom.net.listeners.responder import Responder
from mudroom.net.listeners.socks import socks
from mudroom.net.listeners.tunnel import HandedConnection, check_first_bytes, serve_tunnel
from mudroom.net.protocol import client_hello, refusal
from mudroom.net.protocol import refusal as say
from mudroom.net.protocol.head import BadHead, RequestHead
from mudroom.net.protocol.synthetic import Synthetic, is_synthetic
from mudroom.typing import Any, NamedTuple

# --- connections from programs that do not know the proxy ---
#
# Their destination is the address that they connected to.
# Rules of this file:
#
# - An address in the synthetic ranges stands for the name that was looked up; the name in TLS or HTTP must be the same.
#   Any other address is a literal, and is judged as such.
# - A place on the command's own loopback that a rule opens leads to this machine's loopback: to the place itself, or,
#   under a rule for ``localhost``, to both of its addresses.
# - Where a rule tells requests apart, HTTP is judged request by request; any other protocol is judged as a whole.
# - A refused client gets the reason as far as its protocol carries it: an HTTP response, also within TLS where the
#   sandbox trusts the vault's authority, or an alert. Any other connection is reset.


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


# --- all listeners ---

FIRST_BYTE = 10.0
"""Seconds until the first byte."""
_SOCKS5, _SOCKS4 = 5, 4


class ListenerContext(NamedTuple):
    """The objects that all of a guard's connections share."""

    guard: Guard
    names: Synthetic
    responder: Responder


class ListenerClient(Peer):
    """A connection from the sandbox to a listener. Used only by the gate process's event loop."""

    def __init__(self, context: ListenerContext, serve: Serve, find: Find | None = None) -> None:
        super().__init__()
        self._context = context
        self._serve_kind = serve
        self._find = find
        self.destination: Destination | OSError = OSError(errno.EINVAL, "it was not captured")
        """The captured connection's destination, or the reason why it is unknown."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._find is not None:
            try:
                self.destination = self._find(self.transport.get_extra_info("socket"))
            except OSError as error:
                self.destination = error
        if self._context.guard.register(self):
            self._context.guard.start(self._serve())
        else:
            self.cut()

    def connection_lost(self, error: Exception | None) -> None:
        self._context.guard.unregister(self)
        super().connection_lost(error)

    async def _serve(self) -> None:
        try:
            await self._serve_kind(self, self._context)
            await self.dismiss()
        except PeerGone:
            pass  # the flow has already been reported
        finally:
            self.end()


async def _proxied(client: Peer, context: ListenerContext) -> None:
    guard = context.guard
    try:
        if not client.buffer:
            async with asyncio.timeout(FIRST_BYTE):
                while not client.buffer:
                    if not await client.more():
                        return
    except TimeoutError:
        return
    if client.buffer[0] in (_SOCKS5, _SOCKS4):
        connection = await socks(client, guard)
    else:
        head = await _first_head(client, guard)
        if head is None:
            return
        if head.method != "CONNECT":
            await _http(client, guard, head)
            return
        connection = await connect(client, guard, head)
    if connection is not None:
        await _serve_handed(client, guard, connection)


async def _keyed(client: Peer, context: ListenerContext, key: bytes) -> None:
    """Serve a connection that begins with the key as a proxy's. End others without an answer: they are strangers'."""
    try:
        async with asyncio.timeout(FIRST_BYTE):
            while len(client.buffer) < len(key):
                if not await client.more():
                    return
    except TimeoutError:
        return
    if hmac.compare_digest(client.take(len(key)), key):
        await _proxied(client, context)


async def _first_head(client: Peer, guard: Guard) -> RequestHead | None:
    try:
        return await read_head(client, FIRST_BYTE)
    except BadHead as error:
        Exchange(guard, "http", "", 0).refuse(str(error))
        await client.write(refusal.response(error.status, str(error)))
        return None


async def _captured(client: ListenerClient, context: ListenerContext) -> None:
    destination = client.destination
    if isinstance(destination, OSError):
        Exchange(context.guard, "raw", "", 0).refuse(f"its destination is unknown: {destination.strerror}")
        return
    connection = await serve_transparent(client, context.guard, context.names, destination)
    if connection is not None:
        await _serve_handed(client, context.guard, connection)


async def _http(client: Peer, guard: Guard, head: RequestHead) -> None:
    await serve_http(client, guard, head)


async def _serve_handed(client: Peer, guard: Guard, handed: HandedConnection) -> None:
    exchange, server = handed
    origin = Authority(parse_host(exchange.host.encode()), exchange.port)
    link = None if server is None else Link(origin, server, exchange.address)
    await serve_http(client, guard, None, origin, link)


async def _dns(client: Peer, context: ListenerContext) -> None:
    await context.responder.serve_tcp(client)


async def _loopback(client: Peer, context: ListenerContext, place: LoopbackPlace) -> None:
    connection = await serve_loopback(client, context.guard, place)
    if connection is not None:
        await _serve_handed(client, context.guard, connection)


Serve = Callable[[ListenerClient, ListenerContext], Coroutine[Any, Any, None]]
Find = Callable[[socket.socket], Destination]

_SERVE: dict[str, Serve] = {"proxy": _proxied, "transparent": _captured, "redirected": _captured, "dns-tcp": _dns}
FIND: dict[str, Find] = {"transparent": own_address, "redirected": original_destination}
"""Function that finds a captured connection's destination, by kind."""
LOOPBACK, KEYED = "loopback=", "keyed="


def serve_of(kind: str) -> Serve:
    """Return the function that serves a listener's connections. Raise KeyError for an unknown kind, ValueError for an
    invalid place."""
    if kind.startswith(KEYED):
        return functools.partial(_keyed, key=bytes.fromhex(kind.removeprefix(KEYED)))
    if not kind.startswith(LOOPBACK):
        return _SERVE[kind]
    host, port = parse_authority(kind.removeprefix(LOOPBACK).encode())
    return functools.partial(_loopback, place=LoopbackPlace(host.text, port))


# --- CONNECT ---


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def parse_connect(head: RequestHead) -> Authority:
    """Return the destination. Raise BadHead, also if a Host header names another destination."""
    try:
        target = parse_authority(head.target)
        host = head.get(b"host")
        other = target if host in (None, head.target) else parse_authority(host, target.port)
    except ValueError as error:
        raise BadHead(str(error)) from error
    if other != target:
        raise BadHead(f"the host header names {other}, and CONNECT {target}")
    if head.has_body:
        raise BadHead("a CONNECT has no body")
    return target


async def connect(client: Peer, guard: Guard, head: RequestHead) -> HandedConnection | None:
    """Serve the tunnel to its end. Plain HTTP is not served but returned with the server connection, to be judged
    request by request."""
    try:
        target = parse_connect(head)
    except BadHead as error:
        Exchange(guard, "connect", show(head.target[:256]), 0).refuse(str(error))
        await client.write(say.response(error.status, str(error)))
        return None
    exchange = Exchange(guard, "connect", target.host.text, target.port)
    try:
        await exchange.admit(client)
        upstream = await exchange.reach()
    except RefusedExchange as refusal:
        await client.write(say.response(403, say.denied(exchange.host, exchange.port, str(refusal))))
        return None
    except Unreachable as failure:
        await client.write(say.response(failure.status, str(failure)))
        return None
    return await serve_tunnel(client, upstream, exchange, _ESTABLISHED)
