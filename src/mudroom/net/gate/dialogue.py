"""One HTTP/1 request and its response, through h11 on both sides.

Rules of this file: no bytes are passed on unparsed. h11 reads the input and writes the output: framing, Host and
hop-by-hop fields are the gate's own on either side. A truncated response is never made to look complete. Bytes for the
client go through ``ResponseWriter``, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h11

from mudroom.net.gate.exchange import Exchange, RefusedExchange
from mudroom.net.gate.inspector import Rewrite
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.response_writer import ResponseWriter
from mudroom.net.gate.sanitizer import CredentialSanitizer
from mudroom.net.protocol.head import RequestHead, end_to_end
from mudroom.net.protocol.target import Target
from mudroom.typing import NamedTuple

_RESPONSE_HEAD = 64 << 10
BODY_IDLE = 600.0
"""Seconds between two pieces in a request's body."""
_AFTER_END = 30.0
"""Seconds that a server may be silent after the client's last data."""


class Message(NamedTuple):
    head: RequestHead
    target: Target
    fields: list[tuple[bytes, bytes]]
    """For the server, without framing and Host."""
    upgrade: bool
    """Whether it asks for a websocket."""


class Dialogue:
    """One request and its response, through h11 on both sides."""

    def __init__(
        self,
        client: Peer,
        server: Peer,
        exchange: Exchange,
        message: Message,
        rewrite: Rewrite,
        writer: Callable[[Peer, CredentialSanitizer | None], ResponseWriter] = ResponseWriter,
    ) -> None:
        self._client = client
        self._server = server
        self._exchange = exchange
        self._head, self._target, self._end_to_end, self._upgrade = message
        self._rewrite = rewrite
        self._account = client.account
        self._fed = {client: 0, server: 0}
        """Bytes that h11 was given last from each end, and may still hold."""
        self._refusal: RefusedExchange | None = None
        """Set if the body was refused after the request had been let through."""
        self._answer = writer(client, rewrite.sanitizer)
        self._from_client = self._answer.connection
        self._toward_server = h11.Connection(h11.CLIENT, max_incomplete_event_size=_RESPONSE_HEAD)

    async def run(self) -> bool:
        """Pass on the request and the response. Return whether another request may follow on the client's
        connection."""
        self._from_client.receive_data(self._head.raw)
        self._from_client.next_event()
        request = h11.Request(method=self._head.method, target=self._target.path, headers=self._fields())
        received = self._server.count
        await self._to_server(request)
        body = asyncio.get_running_loop().create_task(self._body())
        try:
            switched = await self._response()
            if switched:
                await self._relay()
                return False
            return await self._may_continue(body)
        finally:
            if not body.done():  # otherwise its flow is reported at once, before those of later connections
                body.cancel()
                await asyncio.wait({body})
            if not body.cancelled():
                body.exception()  # retrieved so that asyncio does not warn; the response has reported it
            self._exchange.received = self._server.count - received
            for length in self._fed.values():
                self._account.free(length)

    async def _may_continue(self, body: asyncio.Task[None]) -> bool:
        if body.done():
            rest, _ = self._from_client.trailing_data
            self._client.put_back(rest)
        done = (h11.DONE, h11.DONE)
        server = self._toward_server
        if (server.our_state, server.their_state) != done or server.trailing_data[0]:
            self._server.end()
        client = self._from_client
        return body.done() and (client.our_state, client.their_state) == done

    def _fields(self) -> list[tuple[bytes, bytes]]:
        fields = [(b"Host", self._target.host_field(self._rewrite.port))]
        fields += [(name, value) for name, value in self._end_to_end if name.lower() != b"host"]
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

    def _feed(self, side: h11.Connection, peer: Peer) -> None:
        """Give h11 the received bytes. It holds them until it wants more."""
        length = len(peer.buffer)
        side.receive_data(peer.take(length))
        self._account.recharge(self._fed[peer], length)
        self._fed[peer] = length

    # --- the request's body ---

    async def _body(self) -> None:
        try:
            await self._pass_body()
        except h11.RemoteProtocolError as error:
            self._exchange.error = f"the client's body: {error}"
            self._server.cut()
        except RefusedExchange as refusal:
            self._refusal = refusal
            self._server.cut()

    async def _pass_body(self) -> None:
        watch = self._rewrite.watch(self._exchange)
        while True:
            event = self._from_client.next_event()
            if event is h11.NEED_DATA:
                if not self._client.buffer and not await self._more_body():
                    self._exchange.error = self._exchange.error or "the client ended within a request"
                    self._server.cut()
                    return
                self._feed(self._from_client, self._client)
            elif isinstance(event, h11.Data):
                if watch is not None:
                    watch(bytes(event.data))
                await self._to_server(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self._to_server(h11.EndOfMessage())
                return
            else:
                return

    async def _more_body(self) -> bool:
        try:
            async with asyncio.timeout(BODY_IDLE):
                return await self._client.more()
        except TimeoutError:
            self._exchange.error = f"the client sent no more of its body within {BODY_IDLE:.0f} s"
            return False

    # --- the response ---

    async def _response(self) -> bool:
        """Pass on the response. Return whether the protocol was switched."""
        while True:
            event = self._toward_server.next_event()
            if event is h11.NEED_DATA:
                await self._wait_for_server()
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    return await self._switch(event)
                if self._head.minor:
                    await self._answer.informational(event.status_code, end_to_end(event.headers.raw_items()))
            elif isinstance(event, h11.Response):
                fields = self._response_fields(event)
                self._rewrite.check(self._exchange, event.status_code, fields)
                self._exchange.status = event.status_code
                await self._answer.head(event.status_code, fields, event.reason)
            elif isinstance(event, h11.Data):
                await self._answer.data(event.data)
            elif isinstance(event, h11.EndOfMessage):
                await self._answer.end()
                return False
            else:
                raise PeerGone("the server ended without a response")

    async def _wait_for_server(self) -> None:
        server, client = self._server, self._client
        while not server.buffer and not server.ended:
            ends = client.closed if client.ended else client.over
            limit = _AFTER_END if client.ended else None
            done, _ = await asyncio.wait({server.news(), ends}, return_when=asyncio.FIRST_COMPLETED, timeout=limit)
            if client.lost or not done:
                raise PeerGone("the client ended before the response did")
        if self._refusal is not None:
            raise PeerGone(str(self._refusal)) if self._exchange.status else self._refusal
        if not server.buffer and server.error:
            raise PeerGone(server.error)
        self._feed(self._toward_server, server)

    def _response_fields(self, event: h11.Response) -> list[tuple[bytes, bytes]]:
        fields = self._rewrite.response(self._exchange, end_to_end(event.headers.raw_items()))
        chunked = any(name == b"transfer-encoding" for name, _value in event.headers)
        if chunked:
            fields = [(name, value) for name, value in fields if name.lower() != b"content-length"]
            fields.append((b"Transfer-Encoding", b"chunked"))
        return fields

    async def _switch(self, event: h11.InformationalResponse) -> bool:
        fields = dict(event.headers)
        if not self._upgrade or fields.get(b"upgrade", b"").lower() != b"websocket":
            raise PeerGone("the server switched to a protocol that nobody asked for")
        answer = self._rewrite.response(self._exchange, end_to_end(event.headers.raw_items()))
        self._rewrite.check(self._exchange, 101, answer)
        self._exchange.status = 101
        await self._answer.switch(answer)
        return True

    async def _relay(self) -> None:
        for peer, side in ((self._client, self._from_client), (self._server, self._toward_server)):
            peer.put_back(side.trailing_data[0])
            self._account.free(self._fed[peer])  # h11 holds nothing more
            self._fed[peer] = 0
        before = self._client.count - len(self._client.buffer)
        try:
            await self._rewrite.relay(self._client, self._server)
        finally:
            self._exchange.sent += self._client.count - before
