"""What becomes of a connection to a listener, by the listener's kind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import NamedTuple

from mudroom.core.network.host import Authority, parse_host
from mudroom.net.entrances.captured import Where, captured, original_destination, own_address
from mudroom.net.entrances.connect import connect
from mudroom.net.entrances.responder import Responder
from mudroom.net.entrances.socks import socks
from mudroom.net.entrances.tunnel import HandedConnection
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.guard import DoorGuard
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.request_head import read_head
from mudroom.net.protocol import refusal
from mudroom.net.protocol.head import BadHead, RequestHead
from mudroom.net.protocol.synthetic import Synthetic

FIRST_BYTE = 10.0
"""Seconds."""
_SOCKS5, _SOCKS4 = 5, 4


class EntranceContext(NamedTuple):
    """What all connections of one door share."""

    guard: DoorGuard
    names: Synthetic
    responder: Responder


class EntranceClient(Peer):
    """A connection of the sandbox to a listener of this kind."""

    def __init__(self, place: EntranceContext, kind: str) -> None:
        super().__init__()
        self._place = place
        self._kind = kind

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._place.guard.comes(self):
            self._place.guard.start(self._serve())
        else:
            self.cut()

    def connection_lost(self, error: Exception | None) -> None:
        self._place.guard.goes(self)
        super().connection_lost(error)

    async def _serve(self) -> None:
        try:
            await _SERVE[self._kind](self, self._place)
            await self.dismiss()
        except PeerGone:
            pass  # whatever came of it has been told
        finally:
            self.end()


async def _proxied(client: Peer, place: EntranceContext) -> None:
    guard = place.guard
    try:
        async with asyncio.timeout(FIRST_BYTE):
            while not client.buffer:
                if not await client.more():
                    return
    except TimeoutError:
        return
    if client.buffer[0] in (_SOCKS5, _SOCKS4):
        found = await socks(client, guard)
    else:
        head = await _first_head(client, guard)
        if head is None:
            return
        if head.method != "CONNECT":
            await _http(client, guard, head)
            return
        found = await connect(client, guard, head)
    if found is not None:
        await _handed(client, guard, found)


async def _first_head(client: Peer, guard: DoorGuard) -> RequestHead | None:
    try:
        return await read_head(client, FIRST_BYTE)
    except BadHead as error:
        Exchange(guard, "http", "", 0).refuse(str(error))
        await client.write(refusal.response(error.status, str(error)))
        return None


async def _captured(client: Peer, place: EntranceContext, tell: Callable[[socket.socket], Where]) -> None:
    with socket.socket(fileno=os.dup(client.transport.get_extra_info("socket").fileno())) as channel:
        try:
            where = tell(channel)
        except OSError as error:
            Exchange(place.guard, "raw", "", 0).refuse(f"it cannot be told whom it is for: {error.strerror}")
            return
    found = await captured(client, place.guard, place.names, where)
    if found is not None:
        await _handed(client, place.guard, found)


async def _http(client: Peer, guard: DoorGuard, head: RequestHead) -> None:
    from mudroom.net.gate.http import serve_http  # h11 takes a third of this process's start: at the first need

    await serve_http(client, guard, head)


async def _handed(client: Peer, guard: DoorGuard, handed: HandedConnection) -> None:
    from mudroom.net.gate.http import Link, serve_http

    exchange, server = handed
    origin = Authority(parse_host(exchange.host.encode()), exchange.port)
    link = None if server is None else Link(origin, server, exchange.address)
    await serve_http(client, guard, None, origin, link)


async def _dns(client: Peer, place: EntranceContext) -> None:
    await place.responder.serve_tcp(client)


async def _transparent(client: Peer, place: EntranceContext) -> None:
    await _captured(client, place, own_address)


async def _redirected(client: Peer, place: EntranceContext) -> None:
    await _captured(client, place, original_destination)


_SERVE = {"proxy": _proxied, "transparent": _transparent, "redirected": _redirected, "dns-tcp": _dns}
STREAMS = frozenset(_SERVE)
