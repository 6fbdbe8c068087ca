"""SOCKS5 (RFC 1928): CONNECT by name or address, without authentication; no other command.

Rules of this file: a name is parsed by ``core/network/host.py``, like any name; a name with a NUL is invalid. UDP
ASSOCIATE and BIND are refused: a sandbox has no UDP, and no incoming connections.
"""

from __future__ import annotations

import asyncio

from mudroom.core.network.address import show_address
from mudroom.core.network.host import HostName, parse_host
from mudroom.core.tree.path import show
from mudroom.net.gate.exchange import Exchange, RefusedExchange, Unreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import Peer
from mudroom.net.listeners.tunnel import HandedConnection, serve_tunnel
from mudroom.typing import NamedTuple

PATIENCE = 10.0
"""Seconds for the client's whole negotiation."""

OK, FAILED, NOT_ALLOWED, UNREACHABLE, NO_SUCH_COMMAND, NO_SUCH_ADDRESS = 0, 1, 2, 4, 7, 8
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4


class BadSocks(ValueError):
    """``code`` is the reply code for the client."""

    def __init__(self, reason: str, code: int = FAILED) -> None:
        super().__init__(reason)
        self.code = code


class SocksRequest(NamedTuple):
    host: HostName
    port: int


def parse_greeting(data: bytes) -> int | None:
    """Return the greeting's length, or None if it is incomplete. Raise BadSocks unless it offers to work without
    authentication."""
    if len(data) < 2 or len(data) < 2 + data[1]:
        return None
    if data[0] != 5 or 0 not in data[2 : 2 + data[1]]:
        raise BadSocks("it is not SOCKS5, or wants a password")
    return 2 + data[1]


def parse_request(data: bytes) -> tuple[SocksRequest, int] | None:
    """Return the request and its length, or None if it is incomplete. Raise BadSocks."""
    if len(data) < 5:
        return None
    version, command, reserved, kind, length = data[:5]
    if version != 5 or reserved != 0:
        raise BadSocks("it is not SOCKS5")
    if command != _CONNECT:
        raise BadSocks("only CONNECT goes through the gate", NO_SUCH_COMMAND)
    start, size = {_IPV4: (4, 4), _IPV6: (4, 16), _NAME: (5, length)}.get(kind, (0, 0))
    if not start:
        raise BadSocks("the address is of an unknown kind", NO_SUCH_ADDRESS)
    end = start + size + 2
    if len(data) < end:
        return None
    raw, port = data[start : end - 2], int.from_bytes(data[end - 2 : end], "big")
    try:
        host = parse_host(raw if kind == _NAME else show_address(raw).encode())
    except ValueError as error:
        raise BadSocks(str(error)) from error
    if not port:
        raise BadSocks(f"{show(raw)}: there is no port 0")
    return SocksRequest(host, port), end


def reply(code: int) -> bytes:
    return bytes((5, code, 0, _IPV4)) + bytes(6)


async def socks(client: Peer, guard: Guard) -> HandedConnection | None:
    """Serve the connection as ``connect`` does."""
    try:
        request = await _read_request(client)
    except BadSocks as error:
        Exchange(guard, "socks", "", 0).refuse(str(error))
        client.transport.write(reply(error.code))
        return None
    if request is None:
        return None
    exchange = Exchange(guard, "socks", request.host.text, request.port)
    try:
        await exchange.admit(client)
        upstream = await exchange.reach()
    except RefusedExchange:
        client.transport.write(reply(NOT_ALLOWED))
        return None
    except Unreachable as failure:
        client.transport.write(reply(NOT_ALLOWED if failure.status == 403 else UNREACHABLE))
        return None
    return await serve_tunnel(client, upstream, exchange, reply(OK))


async def _read_request(client: Peer) -> SocksRequest | None:
    try:
        async with asyncio.timeout(PATIENCE):
            while (length := parse_greeting(bytes(client.buffer[:257]))) is None:
                if not await client.more():
                    return None
            client.take(length)
            await client.write(b"\x05\x00")
            while (request := parse_request(bytes(client.buffer[:262]))) is None:
                if not await client.more():
                    return None
            client.take(request[1])
            return request[0]
    except TimeoutError:
        raise BadSocks(f"it did not come within {PATIENCE:.0f} s") from None
