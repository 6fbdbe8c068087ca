"""Inspect TLS where a rule requires it: terminate the client's connection here, open another to the server, judge the
requests between.

Rules of this file: the server has proved its identity, by the system's roots, before the client gets an answer. The
client is offered only the protocol that the server has chosen, so HTTP/1.1 and HTTP/2 are never translated into each
other. A connection that cannot be inspected is refused: a rule that inspects is never served by a tunnel. A client that
does not trust the vault's authority gets no response, and the flow says so.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from mudroom.core.network.flow import Way
from mudroom.core.network.host import Authority, parse_host
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.core.registry import part_or_none
from mudroom.core.tree.path import show
from mudroom.ext.inspection.authority import EXTRA, Issuer, client_context, issuer
from mudroom.ext.inspection.rewrite import MOST_KEPT, CredentialRewrite, Fields, keep_headers
from mudroom.ext.inspection.tls import HANDSHAKE, TlsConnection, start_tls
from mudroom.net.gate.exchange import Exchange, Unreachable
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.request_head import IDLE, read_head
from mudroom.net.gate.response_writer import send_refusal
from mudroom.net.protocol.client_hello import LIMIT, Kind, parse_hello
from mudroom.net.protocol.head import BadHead

H1, H2 = "http/1.1", "h2"
TLS_MEMORY = 96 << 10
"""Bytes for two TLS connections, h2's state included; measured."""
_WINDOWS = 2 * (128 << 10)
"""Bytes for two HTTP/2 connections' first windows (``stream.py``, which is loaded when it is needed)."""
_EXCLUDE = "if it pins its certificate, exclude the host (network.never_inspect)"
_HELD = "its rule holds what is sent there, for which a client has to trust the sandbox's certificates: mudroom net why"


async def inspect(plain: CredentialRewrite, client: Peer, server: Peer, exchange: Exchange, kind: Kind) -> None:
    """Serve a connection that begins with TLS to its end. The ClientHello is in ``client``'s buffer, and its name has
    been compared. ``plain``: the guard's changes for plain HTTP. Raise RefusedExchange, PeerGone."""
    try:
        inspection, issuing, offered = _ready(client, exchange, kind)
        windows = _WINDOWS if H2 in offered else 0
        if not await exchange.guard.reserve(client, TLS_MEMORY + windows):
            raise exchange.refuse("its rule requires inspection, and its command's connections hold all that they may")
        server_tls, failure_reason = None, ""
        try:
            server_tls = await connect_tls(server, exchange, inspection, offered, exchange.named)
        except Unreachable as failure:
            failure_reason = str(failure)
        protocol = H1 if server_tls is None else server_tls.protocol or H1
        client.account.free(windows if protocol == H1 else 0)
        client_tls = await _accept_tls(client, exchange, issuing, protocol)
        if client_tls is None:
            return
        if server_tls is None:
            await _send_failure(client_tls, exchange, 502, failure_reason)
        elif exchange.holding is not None and not offered and await _speaks_first(client_tls, server_tls):
            effects = part_or_none("effects", "servers")
            if effects is None:
                raise exchange.refuse(
                    "its rule holds what is sent there, and this installation lacks mudroom/ext/effects"
                )
            await effects.serve_other(client_tls, server_tls, exchange, "smtps")
        else:
            await _serve(client_tls, server_tls, exchange, InspectedConnection(inspection, plain, exchange.named))
    except PeerGone as gone:
        exchange.error = exchange.error or str(gone)
        raise
    finally:
        server.cut()


async def decline(client: Peer, exchange: Exchange, status: int, reason: str) -> bool:
    """Answer the first request within a refused client's TLS, if it speaks HTTP/1.1 and the vault has an authority.
    Nothing is sent to a server. Return False, without a byte sent, if that is not possible. Raise PeerGone."""
    guard = exchange.guard
    if guard.inspection is None:
        return False
    try:
        issuing = issuer(guard.inspection.authority)
        async with asyncio.timeout(HANDSHAKE):
            while (hello := parse_hello(bytes(client.buffer[: 2 * LIMIT]))) is None and await client.more():
                pass
    except (ImportError, TimeoutError, ValueError):
        return False
    offered = () if hello is None else hello.alpn
    if hello is None or (offered and H1.encode() not in offered) or not await guard.reserve(client, TLS_MEMORY):
        return False
    secure = await _accept_tls(client, exchange, issuing, H1)
    if secure is not None:
        await _send_failure(secure, exchange, status, reason)
    return True


async def _speaks_first(client: Peer, server: Peer) -> bool:
    """Return whether the server speaks before the client does, as one of mail does (RFC 8314 3.3)."""
    while not client.buffer and not server.buffer and not client.ended and not server.ended:
        await client.news_with(server)
    return not client.buffer and bool(server.buffer)


def _ready(client: Peer, exchange: Exchange, kind: Kind) -> tuple[Inspection, Issuer, tuple[str, ...]]:
    """Return the means for inspection, and the client's protocols that can be inspected. Raise RefusedExchange."""
    inspection = exchange.guard.inspection
    if kind != "tls":
        raise exchange.refuse("its rule requires inspection, but it is neither TLS nor HTTP")
    if inspection is None:
        raise exchange.refuse("its rule requires inspection, but this gate has no certificate authority")
    try:
        issuing = issuer(inspection.authority)
    except ImportError as error:
        raise exchange.refuse(f"its rule requires inspection, which needs {error.name}: {EXTRA}") from error
    hello = parse_hello(bytes(client.buffer))
    offered = () if hello is None else hello.alpn
    known = (H2, H1) if exchange.holding is None else (H1,)
    usable = tuple(protocol for protocol in known if protocol.encode() in offered)
    if offered and not usable:
        names = ", ".join(show(protocol) for protocol in offered)
        raise exchange.refuse(f"its rule requires inspection, but it speaks {names}, which is not HTTP; {_EXCLUDE}")
    return inspection, issuing, usable


async def connect_tls(
    server: Peer, exchange: Exchange, inspection: Inspection, protocols: tuple[str, ...], host: str
) -> TlsConnection:
    """Start TLS with the server, which must prove to be the host. Raise Unreachable after reporting the flow."""
    try:
        context = client_context(inspection.roots, protocols)
        return await start_tls(server, context, server_side=False, name=host)
    except ssl.SSLCertVerificationError as error:
        why = f"the certificate of {host} is refused: {error.verify_message}"
    except ssl.SSLError as error:
        why = f"no TLS with {host}: {_reason(error)}"
    except TimeoutError:
        why = f"no TLS with {host}: no answer in time"
    except ConnectionError as error:
        why = f"no TLS with {host}: {error}"
    server.cut()
    exchange.error = why
    exchange.report()
    raise Unreachable(why, 502)


async def _accept_tls(client: Peer, exchange: Exchange, issuing: Issuer, protocol: str) -> TlsConnection | None:
    """Start TLS with the client. Return None if the client refuses."""
    try:
        return await start_tls(client, issuing.context(exchange.host, protocol), server_side=True)
    except ssl.SSLError as error:
        why = f"the client refuses mudroom's certificate ({_reason(error)})"
    except (ConnectionError, TimeoutError):
        why = "the client ended after it received mudroom's certificate"
    _tell_untrusted(exchange, why)
    return None


def _tell_untrusted(exchange: Exchange, why: str) -> None:
    """Report that a client does not trust the vault's authority: a refusal where the rule holds."""
    if exchange.holding is not None:
        exchange.refuse(f"{why}; {_HELD} {exchange.host}:{exchange.port}")
        return
    exchange.error = f"{why}; {_EXCLUDE}"
    exchange.report()


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


async def _send_failure(client: TlsConnection, exchange: Exchange, status: int, why: str) -> None:
    """Answer the client's first request with the reason why it does not reach the server."""
    with suppress(BadHead):  # it is answered all the same, and nothing else is read
        await read_head(client, IDLE)
    await send_refusal(client, exchange.guard.sanitizer, status, why)
    await client.dismiss()


async def _serve(
    client: TlsConnection, server: TlsConnection, exchange: Exchange, rewrite: InspectedConnection
) -> None:
    """Serve the requests. Each becomes its own flow; the connection's flow is reported only if there were no
    requests."""
    origin = Authority(parse_host(exchange.host.encode()), exchange.port)
    try:
        if client.protocol == H2:
            from mudroom.ext.inspection.bridge import Bridge

            rewrite.version = "HTTP/2"
            await Bridge(client, server, exchange.guard, origin, exchange.address, rewrite).run()
        else:
            from mudroom.net.gate.http import Link, serve_http

            await serve_http(client, exchange.guard, None, origin, Link(origin, server, exchange.address), rewrite)
        await client.dismiss()
    finally:
        if client.count:
            exchange.drop()
        else:
            _tell_untrusted(exchange, "the client sent no request after it received mudroom's certificate")
        client.end()


class InspectedConnection(CredentialRewrite):
    """The changes for HTTP inside TLS."""

    way: Way = "https"
    port = 443
    opens_websockets = True
    version = "HTTP/1.1"

    def __init__(self, inspection: Inspection, plain: CredentialRewrite, host: str) -> None:
        """``host``: as the client names it."""
        super().__init__(plain.credentials, plain.sanitizer, plain.cookies)
        self._inspection, self.host = inspection, host

    async def reach(self, exchange: Exchange) -> Peer:
        return await connect_tls(await exchange.reach(), exchange, self._inspection, (H1,), self.host)

    def request(self, exchange: Exchange, rule: HostRule | None, path: bytes, fields: Fields) -> tuple[bytes, Fields]:
        exchange.version, exchange.request = self.version, keep_headers(fields)
        rules = exchange.changing_rules()
        if self.credentials or rules:
            path, fields = self._insert(exchange, path, fields, rules, secure=True)
        for changing in sorted(rules, key=lambda changing: changing == rule):  # the deciding rule has the last word
            fields = rewrite_headers(fields, changing)
        return path, fields

    def response(self, exchange: Exchange, fields: Fields) -> Fields:
        kept = fields[:MOST_KEPT]
        # searched first and cut afterwards, so that no value is halved
        exchange.response = keep_headers(kept if self.sanitizer is None else self.sanitizer.fields(kept))
        return super().response(exchange, fields)


def rewrite_headers(fields: Fields, rule: HostRule) -> Fields:
    """Return the fields with the headers that a rule sets, without those that it removes."""
    if not rule.set_headers and not rule.remove_headers:
        return fields
    ours = [(name.lower().encode(), value.encode()) for name, value in rule.set_headers]
    gone = {name.lower().encode() for name in rule.remove_headers} | {name for name, _value in ours}
    return [field for field in fields if field[0].lower() not in gone] + ours
