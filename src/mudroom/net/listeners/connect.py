"""CONNECT: a tunnel that is requested by name (RFC 9110 9.3.6)."""

from __future__ import annotations

from mudroom.core.network.host import Authority, parse_authority
from mudroom.core.tree.path import show
from mudroom.net.gate.exchange import Exchange, RefusedExchange, Unreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import Peer
from mudroom.net.listeners.tunnel import HandedConnection, serve_tunnel
from mudroom.net.protocol import refusal as say
from mudroom.net.protocol.head import BadHead, RequestHead

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def parse_connect(head: RequestHead) -> Authority:
    """Return the destination. Raise BadHead, also if a Host header names another one."""
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
