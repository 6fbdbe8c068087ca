"""Plain HTTP/1: every request on a connection is judged by itself, and written anew.

Rules of this file: ``head.py`` has refused what can be read in two ways before h11 sees it. Nothing is passed on as it
came: the request line, Host and the framing of both sides are ours, so what a server reads is what was judged. What is
for one connection only is left out. After ``101`` a connection is bytes that nobody judges, so only ``websocket`` gets
there, and only by a rule that is not about methods or paths.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import h11

from mudroom.core.host import Authority, parse_authority
from mudroom.core.path import show
from mudroom.net import say
from mudroom.net.exchange import Exchange, Refused, Unreachable
from mudroom.net.guard import Guard
from mudroom.net.head import LIMIT, BadHead, Head, end_to_end
from mudroom.net.peer import Gone, Peer
from mudroom.net.read import IDLE, read_head
from mudroom.net.relay import relay

_RESPONSE_HEAD = 64 << 10
_LONGEST_PATH = 1024
_SAFE = ("GET", "HEAD", "OPTIONS")
"""May be sent again (RFC 9110 9.2.1)."""
_AFTER_END = 30.0
"""Seconds that a server's silence is borne when the client has said its last."""


class Target(NamedTuple):
    authority: Authority
    path: bytes

    @property
    def host_field(self) -> bytes:
        """As clients write it: without the port that goes without saying."""
        text = str(self.authority)
        return text.removesuffix(":80").encode()


def parse_target(head: Head, origin: Authority | None) -> Target:
    """Whom a request is for. ``origin``: whom the connection is for; None: it is a proxy's. Raises BadHead."""
    target = head.target
    if target[:7].lower() == b"http://":
        where, path = _split(target[7:])
    elif origin is not None and (target.startswith(b"/") or (target == b"*" and head.method == "OPTIONS")):
        where, path = None, target
    else:
        raise BadHead("this is a proxy: http://HOST/PATH, or CONNECT HOST:PORT" if origin is None else "no path")
    if b"#" in path:
        raise BadHead("a fragment is not for servers")
    named = []
    try:
        if where is not None:
            named.append(parse_authority(where, 80))
        host = head.get(b"host")
        if host is not None:
            named.append(parse_authority(host, 80 if origin is None else origin.port))
    except ValueError as error:
        raise BadHead(str(error)) from error
    authority = origin or named[0]
    for other in named:
        if other != authority:
            raise BadHead(f"it is for {authority} and for {other}", 403)
    return Target(authority, path)


def _split(rest: bytes) -> tuple[bytes, bytes]:
    at = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    path = rest[at:]
    return rest[:at], path if path.startswith(b"/") else b"/" + path


class Link(NamedTuple):
    """A connection to a server that further requests of the same client may use."""

    authority: Authority
    peer: Peer
    address: str


async def serve_http(
    client: Peer, guard: Guard, head: Head | None = None, origin: Authority | None = None, link: Link | None = None
) -> None:
    """Serve the requests of one client connection to its end. ``head``: the first, if it has been read. ``origin``: as
    for ``parse_target``. ``link``: a server's connection that is already there."""
    courier = _Courier(client, guard, origin, link)
    where = (origin.host.text, origin.port) if origin else ("", 0)
    try:
        while (head := head or await read_head(client, IDLE)) is not None and await courier.serve(head):
            head = None
    except BadHead as error:
        Exchange(guard, "http", *where).refuse(str(error))
        await client.write(say.response(error.status, str(error)))
    finally:
        courier.close()


class _Courier:
    def __init__(
        self,
        client: Peer,
        guard: Guard,
        origin: Authority | None,
        link: Link | None,
    ) -> None:
        self._client = client
        self._guard = guard
        self._origin = origin
        self._link = link

    async def serve(self, head: Head) -> bool:
        """One request, to the end of its response. Returns whether another may follow. Raises BadHead, Gone."""
        target = parse_target(head, self._origin)
        host, port = target.authority.host.text, target.authority.port
        path = show(target.path.partition(b"?")[0][:_LONGEST_PATH])
        exchange = Exchange(self._guard, "http", host, port, head.method, path)
        try:
            return await self._exchange(exchange, head, target)
        except Refused as refusal:
            await self._client.write(say.response(403, say.denied(host, port, str(refusal))))
        except Unreachable as failure:
            await self._client.write(say.response(failure.status, str(failure)))
        except (Gone, h11.ProtocolError) as error:
            await self._broke_off(exchange, str(error))
        finally:
            exchange.error = exchange.error or ("" if exchange.status else "it was cut")
            exchange.tell()
        return False

    async def _broke_off(self, exchange: Exchange, why: str) -> None:
        """Say so if there is still a response to give; else end it so that it does not look whole."""
        exchange.error = exchange.error or why
        if exchange.status or self._client.lost:
            self._client.cut()
        else:
            await self._client.write(say.response(502, f"{exchange.host}: {exchange.error}"))

    def close(self) -> None:
        if self._link is not None:
            self._link.peer.cut()
            self._link = None

    async def _exchange(self, exchange: Exchange, head: Head, target: Target) -> bool:
        decision = await exchange.admit(self._client)
        upgrade = head.get(b"upgrade")
        if upgrade is not None and upgrade.lower() == b"websocket":
            if decision.rule is not None and (decision.rule.methods or decision.rule.paths):
                raise exchange.refuse("its rule is for some requests only, and what a websocket carries cannot be told")
        else:
            upgrade = None
        was_used = self._link is not None
        peer = await self._server(exchange, target.authority)
        exchange.begin()
        try:
            return await _Dialogue(self._client, peer, exchange, head, target, upgrade is not None).run()
        except (Gone, h11.RemoteProtocolError):
            if not was_used or exchange.received or head.has_body or head.method not in _SAFE or self._client.lost:
                raise
        # The server had closed a connection that was kept for more, as it may at any time (RFC 9112 9.3.1 and 9.5).
        self.close()
        exchange.error, exchange.sent = "", 0
        peer = await self._server(exchange, target.authority)
        return await _Dialogue(self._client, peer, exchange, head, target, upgrade is not None).run()

    async def _server(self, exchange: Exchange, authority: Authority) -> Peer:
        link = self._link
        if link is not None and link.authority == authority and link.peer.is_idle:
            exchange.reuse(link.address)
            return link.peer
        self.close()
        peer = await exchange.reach()
        self._link = Link(authority, peer, exchange.address)
        return peer


class _Dialogue:
    """One request and its response, through h11 on both sides."""

    def __init__(
        self, client: Peer, server: Peer, exchange: Exchange, head: Head, target: Target, upgrade: bool
    ) -> None:
        self._client = client
        self._server = server
        self._exchange = exchange
        self._head = head
        self._target = target
        self._upgrade = upgrade
        self._toward_client = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT + 4)
        self._toward_server = h11.Connection(h11.CLIENT, max_incomplete_event_size=_RESPONSE_HEAD)

    async def run(self) -> bool:
        """Returns whether another request may follow on the client's connection."""
        self._toward_client.receive_data(self._head.raw)
        self._toward_client.next_event()
        request = h11.Request(method=self._head.method, target=self._target.path, headers=self._fields())
        received = self._server.count
        await self._to_server(request)
        body = asyncio.get_running_loop().create_task(self._body())
        try:
            switched = await self._response()
            if switched:
                await self._relay()
                return False
            return await self._is_over(body)
        finally:
            body.cancel()
            await asyncio.wait({body})
            if not body.cancelled():
                body.exception()  # looked at, so that nobody warns; what it means the response has told
            self._exchange.received = self._server.count - received

    async def _is_over(self, body: asyncio.Task[None]) -> bool:
        if body.done():
            rest, _ = self._toward_client.trailing_data
            self._client.buffer[:0] = rest
        done = (h11.DONE, h11.DONE)
        server = self._toward_server
        if (server.our_state, server.their_state) != done or server.trailing_data[0]:
            self._server.end()
        client = self._toward_client
        return body.done() and (client.our_state, client.their_state) == done

    def _fields(self) -> list[tuple[bytes, bytes]]:
        fields = [(b"Host", self._target.host_field)]
        fields += [(name, value) for name, value in end_to_end(self._head.fields) if name.lower() != b"host"]
        if self._head.get(b"transfer-encoding") is not None:
            fields.append((b"Transfer-Encoding", b"chunked"))
        if self._upgrade:
            fields += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        return fields

    async def _to_server(self, event: h11.Event) -> None:
        data = self._toward_server.send(event)
        if data:
            self._exchange.sent += len(data)
            await self._server.write(data)

    async def _to_client(self, event: h11.Event) -> None:
        data = self._toward_client.send(event)
        if data:
            await self._client.write(data)

    # --- the request's body ---

    async def _body(self) -> None:
        try:
            await self._pass_body()
        except h11.RemoteProtocolError as error:
            self._exchange.error = f"the client's body: {error}"
            self._server.cut()

    async def _pass_body(self) -> None:
        while True:
            event = self._toward_client.next_event()
            if event is h11.NEED_DATA:
                if not self._client.buffer and not await self._client.more():
                    self._exchange.error = "the client ended within a request"
                    self._server.cut()
                    return
                self._toward_client.receive_data(self._client.take(len(self._client.buffer)))
            elif isinstance(event, h11.Data):
                await self._to_server(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self._to_server(h11.EndOfMessage())
                return
            else:
                return

    # --- the response ---

    async def _response(self) -> bool:
        """Returns whether the protocol was switched."""
        while True:
            event = self._toward_server.next_event()
            if event is h11.NEED_DATA:
                await self._wait_for_server()
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    return await self._switch(event)
                if self._head.minor:
                    fields = end_to_end(event.headers.raw_items())
                    await self._to_client(h11.InformationalResponse(status_code=event.status_code, headers=fields))
            elif isinstance(event, h11.Response):
                self._exchange.status = event.status_code
                await self._to_client(self._answer(event))
            elif isinstance(event, h11.Data):
                await self._to_client(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self._to_client(h11.EndOfMessage())
                return False
            else:
                raise Gone("the server ended without a response")

    async def _wait_for_server(self) -> None:
        server, client = self._server, self._client
        while not server.buffer and not server.ended:
            ends = client.closed if client.ended else client.over
            limit = _AFTER_END if client.ended else None
            done, _ = await asyncio.wait({server.news(), ends}, return_when=asyncio.FIRST_COMPLETED, timeout=limit)
            if client.lost or not done:
                raise Gone("the client ended before the response did")
        self._toward_server.receive_data(server.take(len(server.buffer)))

    def _answer(self, event: h11.Response) -> h11.Response:
        fields = end_to_end(event.headers.raw_items())
        chunked = any(name == b"transfer-encoding" for name, _value in event.headers)
        if chunked:
            fields = [(name, value) for name, value in fields if name.lower() != b"content-length"]
            fields.append((b"Transfer-Encoding", b"chunked"))
        return h11.Response(status_code=event.status_code, headers=fields, reason=event.reason)

    async def _switch(self, event: h11.InformationalResponse) -> bool:
        fields = dict(event.headers)
        if not self._upgrade or fields.get(b"upgrade", b"").lower() != b"websocket":
            raise Gone("the server switched to a protocol that nobody asked for")
        self._exchange.status = 101
        headers = [*end_to_end(event.headers.raw_items()), (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        head = [b"HTTP/1.1 101 Switching Protocols", *(b"%s: %s" % field for field in headers), b"", b""]
        await self._client.write(b"\r\n".join(head))
        return True

    async def _relay(self) -> None:
        for peer, side in ((self._client, self._toward_client), (self._server, self._toward_server)):
            peer.buffer[:0] = side.trailing_data[0]
        before = self._client.count - len(self._client.buffer)
        try:
            await relay(self._client, self._server)
        finally:
            self._exchange.sent += self._client.count - before
