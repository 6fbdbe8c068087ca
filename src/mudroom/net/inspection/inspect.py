"""Look into TLS where a rule wants it: end the client's here, begin another with the server, judge what is between.

Rules of this file: the server has proved who it is, by the system's roots, before the client hears anything. The client
is offered the one protocol that the server has chosen, so nothing is ever translated between HTTP/1.1 and HTTP/2. What
cannot be inspected is refused: a rule that wants to see requests is never served by a tunnel. A client that does not
trust the vault's authority is told nothing, and the flow says so.
"""

from __future__ import annotations

import ssl

from mudroom.core.network.har import keep_headers
from mudroom.core.network.host import Authority, parse_host
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import EXTRA, Inspection
from mudroom.core.network.placeholder import MisusedPlaceholder, check_path, insert_credentials, restore_placeholders
from mudroom.core.tree.path import show
from mudroom.net.gate.exchange import Exchange, Unreachable
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.request_head import IDLE, read_head
from mudroom.net.gate.rewrite import Fields, Rewrite
from mudroom.net.inspection.authority import Issuer, client_context, issuer
from mudroom.net.inspection.secure import TlsConnection, secure
from mudroom.net.protocol import refusal
from mudroom.net.protocol.client_hello import Kind, parse_hello

H1, H2 = "http/1.1", "h2"
_EXCLUDE = "if it pins its certificate, exclude the host (inspect.never)"


async def inspect(client: Peer, server: Peer, exchange: Exchange, kind: Kind) -> None:
    """Serve a connection that begins with TLS to its end. ``client``'s ClientHello is in its buffer, and its name has
    been compared. Raises Refused, Gone."""
    try:
        inspection, issuing, offered = _ready(client, exchange, kind)
        inside, why = None, ""
        try:
            inside = await secured(server, exchange, inspection, offered)
        except Unreachable as failure:
            why = str(failure)
        protocol = H1 if inside is None else inside.protocol or H1
        outside = await _accepted(client, exchange, issuing, protocol)
        if outside is None:
            return
        if inside is None:
            await _apologise(outside, why)
        else:
            await _serve(outside, inside, exchange, inspection)
    except PeerGone as gone:
        exchange.error = exchange.error or str(gone)
        raise
    finally:
        server.cut()


def _ready(client: Peer, exchange: Exchange, kind: Kind) -> tuple[Inspection, Issuer, tuple[str, ...]]:
    """What is needed, and what of the protocols that the client offers can be inspected. Raises Refused."""
    inspection = exchange.guard.inspection
    if kind != "tls":
        raise exchange.refuse("it is to be inspected, and is neither TLS nor HTTP")
    if inspection is None:
        raise exchange.refuse("it is to be inspected, and this gate was given no authority to do so with")
    try:
        issuing = issuer(inspection.authority)
    except ImportError as error:
        raise exchange.refuse(f"it is to be inspected, which needs {error.name}: {EXTRA}") from error
    hello = parse_hello(bytes(client.buffer))
    offered = () if hello is None else hello.alpn
    usable = tuple(one for one in (H2, H1) if one.encode() in offered)
    if offered and not usable:
        names = ", ".join(show(one) for one in offered)
        raise exchange.refuse(f"it is to be inspected, and speaks {names}, which is not HTTP; {_EXCLUDE}")
    return inspection, issuing, usable


async def secured(
    server: Peer, exchange: Exchange, inspection: Inspection, protocols: tuple[str, ...]
) -> TlsConnection:
    """TLS with the server, which proves to be the exchange's host. Raises Unreachable, the flow having been told."""
    host = exchange.host
    try:
        context = client_context(inspection.roots, protocols)
        return await secure(server, context, server_side=False, name=host)
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
    exchange.tell()
    raise Unreachable(why, 502)


async def _accepted(client: Peer, exchange: Exchange, issuing: Issuer, protocol: str) -> TlsConnection | None:
    """TLS with the client; None if it does not want it."""
    try:
        return await secure(client, issuing.context(exchange.host, protocol), server_side=True)
    except ssl.SSLError as error:
        why = f"the client refuses mudroom's certificate ({_reason(error)})"
    except (ConnectionError, TimeoutError):
        why = "the client did not go on when it had seen mudroom's certificate"
    exchange.error = f"{why}; {_EXCLUDE}"
    exchange.tell()
    return None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


async def _apologise(client: TlsConnection, why: str) -> None:
    """The server cannot be talked to: say so to the client's first request."""
    await read_head(client, IDLE)
    await client.write(refusal.response(502, why))
    await client.dismiss()


async def _serve(client: TlsConnection, server: TlsConnection, exchange: Exchange, inspection: Inspection) -> None:
    """Requests become flows of their own; the connection's is told only if there were none."""
    manner = InspectedConnection(inspection)
    origin = Authority(parse_host(exchange.host.encode()), exchange.port)
    try:
        if client.protocol == H2:
            from mudroom.net.inspection.bridge import Bridge

            manner.version = "HTTP/2"
            await Bridge(client, server, exchange.guard, origin, exchange.address, manner).run()
        else:
            from mudroom.net.gate.http import Link, serve_http

            await serve_http(client, exchange.guard, None, origin, Link(origin, server, exchange.address), manner)
        await client.dismiss()
    finally:
        if client.count:
            exchange.drop()
        else:
            exchange.error = f"the client requested nothing when it had seen mudroom's certificate; {_EXCLUDE}"
            exchange.tell()
        client.end()


class InspectedConnection(Rewrite):
    """Of HTTP inside of TLS."""

    way = "https"
    port = 443
    opens_websockets = True
    version = "HTTP/1.1"

    def __init__(self, inspection: Inspection) -> None:
        super().__init__(inspection.credentials)
        self._inspection = inspection

    async def reach(self, exchange: Exchange) -> Peer:
        return await secured(await exchange.reach(), exchange, self._inspection, (H1,))

    def request(self, exchange: Exchange, rule: HostRule | None, path: bytes, fields: Fields) -> Fields:
        exchange.version, exchange.request = self.version, keep_headers(fields)
        try:
            check_path(path, self.credentials)
            fields = insert_credentials(fields, self.credentials, exchange.host, exchange.port, secure=True)
        except MisusedPlaceholder as error:
            raise exchange.refuse(str(error)) from None
        return fields if rule is None else rewritten(fields, rule)

    def response(self, exchange: Exchange, fields: Fields) -> Fields:
        fields = restore_placeholders(fields, self.credentials)
        exchange.response = keep_headers(fields)
        return fields


def rewritten(fields: Fields, rule: HostRule) -> Fields:
    """With the headers that a rule sets, and without those it removes."""
    if not rule.set_headers and not rule.remove_headers:
        return fields
    ours = [(name.lower().encode(), value.encode()) for name, value in rule.set_headers]
    gone = {name.lower().encode() for name in rule.remove_headers} | {name for name, _value in ours}
    return [field for field in fields if field[0].lower() not in gone] + ours
