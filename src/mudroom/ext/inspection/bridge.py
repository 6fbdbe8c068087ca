"""Inspected HTTP/2: every request on a client's connection is judged separately and sent anew to the server.

Rules of this file: two connections, each framed by h2; their streams are joined in pairs. No part of a request reaches
the server before it has been judged. Bodies and trailers go both ways at the same time, as they arrive (gRPC needs
that). A stream that one side resets is reset at the other. After a server's GOAWAY, the streams that it still serves
continue to their end, and the client gets a GOAWAY, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    InformationalResponseReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from mudroom.core.network.host import Authority
from mudroom.core.tree.path import show
from mudroom.ext.inspection.frame import Flood
from mudroom.ext.inspection.placeholder import MisusedPlaceholder
from mudroom.ext.inspection.pseudo_header import Field, parse_request, parse_response, parse_trailers
from mudroom.ext.inspection.rewrite import CredentialRewrite
from mudroom.ext.inspection.stream import Lane, StreamEnd, size_of
from mudroom.ext.inspection.tls import TlsConnection
from mudroom.net.gate.exchange import Exchange, RefusedExchange
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.inspector import RefusedResponse
from mudroom.net.gate.peer import PeerGone
from mudroom.net.gate.request_head import IDLE
from mudroom.net.protocol import refusal as say
from mudroom.net.protocol.head import BadHead, as_judged
from mudroom.typing import Any

_DRAIN_TIME = 60.0
"""Seconds for a client to receive the remaining data when the server has gone."""


class _Call:
    """One request and its response."""

    def __init__(
        self, client: StreamEnd, number: int, exchange: Exchange, rewrite: CredentialRewrite, over: Callable[[], None]
    ) -> None:
        self.number = number
        self.exchange = exchange
        self.up = Lane(client, number, 0, over)
        self.down = Lane(None, 0, number, over)
        self.scan = rewrite.scan()
        self.task: asyncio.Task[None] | None = None
        self.size = 0
        """Bytes in the request's headers, charged to the connection's account."""
        self.begun = False
        """Whether the client has been sent a response head."""

    def count(self) -> None:
        """Copy the byte counts to the exchange: a flow may be reported next."""
        self.exchange.sent, self.exchange.received = self.up.count, self.down.count


class Bridge:
    def __init__(
        self,
        client: TlsConnection,
        server: TlsConnection,
        guard: Guard,
        origin: Authority,
        address: str,
        rewrite: CredentialRewrite,
    ) -> None:
        self._client = StreamEnd(client, is_client=False, sanitizer=rewrite.sanitizer)
        self._server = StreamEnd(server, is_client=True)
        self._account = client.account
        self._guard = guard
        self._origin = origin
        self._address = address
        self._rewrite = rewrite
        self._authority = str(origin).removesuffix(f":{rewrite.port}").encode()
        self._calls: dict[int, _Call] = {}
        self._upstream: dict[int, _Call] = {}
        self._last = 0
        self._is_leaving = False
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        """Set when a call is over, or the server's limits have changed."""
        self._left = asyncio.Event()
        """Set when the server is leaving and its last call is over."""

    async def run(self) -> None:
        """Run until either connection ends, or both have been idle for ``IDLE`` seconds without a call."""
        loop = self._loop
        reading = [loop.create_task(self._read_client()), loop.create_task(self._read_server())]
        writing = [loop.create_task(self._client.write()), loop.create_task(self._server.write())]
        left = loop.create_task(self._left.wait())
        tasks: list[asyncio.Task[Any]] = [*reading, *writing, left]
        try:
            done: set[asyncio.Task[Any]] = set()
            while not done:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=IDLE)
                if not self._calls:
                    break
            await self._shut_down(reading[0], reading[1], writing[0])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for call in list(self._calls.values()):
                self._drop(call, "it was cut")

    async def _shut_down(
        self, client: asyncio.Task[str], server: asyncio.Task[str], writing: asyncio.Task[None]
    ) -> None:
        """End the bridge after one side has ended, or both are idle: send the remaining data."""
        if server.done() and not client.done() and not writing.done():
            reason = server.exception() or server.result()
            for call in list(self._calls.values()):
                if not call.down.is_ended:
                    self._fail(call, str(reason))
            self._leave()
            try:
                async with asyncio.timeout(_DRAIN_TIME):
                    while self._calls and not writing.done() and not client.done():
                        await self._wait_for_change(writing, client)
            except TimeoutError:
                return
        writing.cancel()
        await asyncio.wait({writing})
        try:
            if not client.done() and not self._client.is_broken:
                self._leave()
            await self._client.flush()
        except (PeerGone, ProtocolError):
            return

    async def _wait_for_change(self, *others: asyncio.Task[Any]) -> None:
        self._changed.clear()
        waiter = self._loop.create_task(self._changed.wait())
        try:
            await asyncio.wait({waiter, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()

    # --- the client's side ---

    async def _read_client(self) -> str:
        try:
            while (events := await self._client.events()) is not None:
                for event in events:
                    self._on_client_event(event)
                    if self._server.is_behind:
                        await self._server.keep_up()
        except (ProtocolError, Flood) as error:
            host, port = self._origin.host.text, self._origin.port
            Exchange(self._guard, self._rewrite.way, host, port).refuse(f"HTTP/2: {error}")
        except PeerGone as gone:
            return str(gone)
        return "the client ended"

    def _on_client_event(self, event: object) -> None:
        client = self._client
        if isinstance(event, RequestReceived):
            self._on_request(event.stream_id, event.headers)
            return
        number = getattr(event, "stream_id", None) or 0
        call = self._calls.get(number)
        if isinstance(event, DataReceived):
            if call is None:
                client.acknowledge(number, event.flow_controlled_length)
            else:
                self._on_client_data(call, event.data, event.flow_controlled_length - len(event.data))
        elif call is None:
            client.wake()
        elif isinstance(event, TrailersReceived):
            call.count()
            try:
                trailers = parse_trailers(event.headers)
                self._rewrite.trailers(call.exchange, trailers)
                if self._has_charged(call, trailers):
                    call.up.trailers = trailers
            except BadHead as error:
                self._refuse(call, 400, call.exchange.refuse(str(error)))
            except RefusedExchange as refusal:
                self._refuse(call, 403, refusal)
        elif isinstance(event, StreamEnded):
            call.up.is_ended = True
            self._server.want(call.up)
        elif isinstance(event, StreamReset):
            self._on_client_reset(call, event.error_code)

    def _on_request(self, number: int, headers: list[Field]) -> None:
        self._last = number
        host, port = self._origin.host.text, self._origin.port
        try:
            request = parse_request(headers, self._origin)
        except BadHead as error:
            call = self._call(number, Exchange(self._guard, self._rewrite.way, host, port))
            self._refuse(call, error.status, call.exchange.refuse(str(error)))
            return
        method, path = as_judged(request.method, show(request.path.partition(b"?")[0]), request.fields)
        call = self._call(number, Exchange(self._guard, self._rewrite.way, host, port, method, path))
        size = size_of(headers)
        if len(self._calls) > 1 and self._account.room() < size:
            why = call.exchange.refuse("its command's connections hold all that they may")
            self._fail(call, str(why), ErrorCodes.REFUSED_STREAM)
            return
        call.size = size
        self._account.hold(size)
        call.task = self._loop.create_task(self._begin(call, request.method, request.path, request.fields))

    def _has_charged(self, call: _Call, trailers: list[Field]) -> bool:
        """Charge trailers until the call is over. Return False, after ending the call, if there is no room."""
        size = size_of(trailers)
        if len(self._calls) > 1 and self._account.room() < size:
            self._fail(call, "its command's connections hold all that they may")
            return False
        call.size += size
        self._account.hold(size)
        return True

    def _call(self, number: int, exchange: Exchange) -> _Call:
        call = _Call(self._client, number, exchange, self._rewrite, lambda: self._check(call))
        self._calls[number] = call
        return call

    async def _begin(self, call: _Call, method: str, path: bytes, fields: list[Field]) -> None:
        """Judge a request and send it to the server."""
        exchange, server = call.exchange, self._server
        try:
            decision = await exchange.admit(self._client.peer)
            if exchange.holding is not None:
                raise exchange.refuse("its rule holds what is sent there since this connection began; connect again")
            why_not = exchange.refusal_of_reuse(self._address)
            if why_not is not None:
                raise exchange.refuse(why_not)
            path, fields = self._rewrite.request(exchange, decision.rule, path, fields)
            while not self._has_room() and not self._is_leaving:
                await self._wait_for_change()
        except RefusedExchange as refusal:
            self._refuse(call, 403, refusal)
            return
        except PeerGone:
            return
        if self._is_leaving:
            self._fail(call, "the server takes no more", ErrorCodes.REFUSED_STREAM)
            return
        pseudo = [
            (b":method", method.encode()),
            (b":scheme", b"https"),
            (b":authority", self._authority),
            (b":path", path),
        ]
        up = call.up
        at_once = up.is_ended and not up.holds() and up.trailers is None
        try:
            number = server.h2.get_next_available_stream_id()
            server.h2.send_headers(number, [*pseudo, *fields], end_stream=at_once)
        except ProtocolError as error:
            self._fail(call, f"HTTP/2: {error}")
            return
        server.has_framed([*pseudo, *fields])
        exchange.reuse(self._address)
        exchange.begin()
        call.down = Lane(server, number, call.number, lambda: self._check(call))
        up.number, up.is_done = number, at_once
        self._upstream[number] = call
        server.want(up)
        server.wake()

    def _has_room(self) -> bool:
        h2 = self._server.h2
        return h2.open_outbound_streams < h2.remote_settings.max_concurrent_streams

    def _on_client_data(self, call: _Call, data: bytes, padding: int) -> None:
        try:
            if call.scan is not None:
                call.scan.see(data)
        except MisusedPlaceholder as error:
            call.up.put(b"", len(data) + padding)
            call.count()
            self._refuse(call, 403, call.exchange.refuse(str(error)))
            return
        call.up.put(data, padding)
        self._server.want(call.up)

    def _refuse(self, call: _Call, status: int, why: RefusedExchange) -> None:
        exchange = call.exchange
        text = say.denied(exchange.host, exchange.port, str(why)) if status == 403 else str(why)
        self._answer(call, status, text)

    # --- the server's side ---

    async def _read_server(self) -> str:
        try:
            while (events := await self._server.events()) is not None:
                for event in events:
                    self._on_server_event(event)
                    if self._client.is_behind:
                        await self._client.keep_up()
                going = self._server.frames.goaway
                if going is not None and not self._is_leaving:
                    self._leave()
                    for number, call in list(self._upstream.items()):
                        if number > going.last:
                            self._fail(call, "the server did not take it", ErrorCodes.REFUSED_STREAM)
        except (ProtocolError, Flood) as error:
            return f"the server: HTTP/2: {error}"
        except PeerGone as gone:
            return str(gone)
        return "the server ended"

    def _on_server_event(self, event: object) -> None:
        number = getattr(event, "stream_id", None) or 0
        call = self._upstream.get(number)
        if isinstance(event, DataReceived):
            if call is None:
                self._server.acknowledge(number, event.flow_controlled_length)
            else:
                call.down.put(event.data, event.flow_controlled_length - len(event.data))
                self._client.want(call.down)
            return
        if call is None:
            self._changed.set()  # the server's limits may have changed
            self._server.wake()
            return
        try:
            if isinstance(event, ResponseReceived | InformationalResponseReceived):
                self._on_response(call, event.headers, isinstance(event, ResponseReceived), event)
            elif isinstance(event, TrailersReceived):
                trailers = parse_trailers(event.headers)
                if self._has_charged(call, trailers):
                    call.down.trailers = trailers
            elif isinstance(event, StreamEnded):
                call.down.is_ended = True
                self._client.want(call.down)
                self._check(call)
            elif isinstance(event, StreamReset):
                self._on_server_reset(call, event.error_code)
        except BadHead as error:
            self._fail(call, f"the server's response: {error}")
        except RefusedResponse as error:
            self._fail(call, str(error))

    def _on_response(self, call: _Call, headers: list[Field], final: bool, event: Any) -> None:
        status, fields = parse_response(headers)
        ended = final and event.stream_ended is not None
        if final:
            self._rewrite.check(call.exchange, status, fields)
            call.exchange.status, call.begun = status, True
            fields = self._rewrite.response(call.exchange, fields)
        if not call.down.is_done:
            head = [(b":status", b"%d" % status), *fields]
            call.down.is_done = not self._client.send_headers(call.number, head, last=ended) or ended

    def _on_server_reset(self, call: _Call, code: int) -> None:
        call.up.stop()
        if call.down.is_ended:
            self._check(call)  # the server has sent its whole response, and refuses the request's rest
            return
        if code != ErrorCodes.NO_ERROR or not call.begun:
            call.exchange.error = f"the server broke it off (HTTP/2 error {int(code)})"
        call.down.reset = code  # after its pending data: some servers end complete responses with a reset
        self._client.want(call.down)

    # --- ends ---

    def _answer(self, call: _Call, status: int, text: str) -> None:
        """Send the gate's own response, or reset the stream if a response has begun."""
        call.up.stop()
        if call.up.number:
            self._server.reset(call.up.number, ErrorCodes.CANCEL)
            self._upstream.pop(call.up.number, None)  # its earlier messages do not belong to this response
        call.down.stop()
        if call.begun or self._client.is_broken:
            self._client.reset(call.number, ErrorCodes.CANCEL)
        else:
            call.begun = True
            body = f"mudroom: {text}\n".encode()
            plain = (b"content-type", b"text/plain; charset=utf-8")
            head = [(b":status", b"%d" % status), plain, (b"content-length", b"%d" % len(body))]
            if self._client.send_headers(call.number, head):
                call.down = Lane(None, 0, call.number, lambda: self._check(call))
                call.down.put(body)
                call.down.is_ended = True
                self._client.want(call.down)
        self._check(call)

    def _fail(self, call: _Call, why: str, code: int | None = None) -> None:
        """Report that the server cannot serve the call. ``code``: reset the stream with it."""
        call.exchange.error = call.exchange.error or why
        if code is None:
            self._answer(call, 502, f"{self._origin.host}: {why}")
            return
        call.up.stop()
        call.down.stop()
        self._client.reset(call.number, code)
        self._check(call)

    def _on_client_reset(self, call: _Call, code: int) -> None:
        call.exchange.error = call.exchange.error or "the client broke it off"
        if call.task is not None:
            call.task.cancel()
        call.up.stop()
        call.down.stop()
        if call.up.number:
            self._server.reset(call.up.number, code)
        self._check(call)

    def _check(self, call: _Call) -> None:
        """Drop the call if it is over."""
        if not call.down.is_done or call.number not in self._calls:
            return
        if not call.up.is_done:  # the server has finished; the client does not need to
            call.up.stop()
            self._server.reset(call.up.number, ErrorCodes.NO_ERROR)
        if not call.up.is_ended:
            self._client.reset(call.number, ErrorCodes.NO_ERROR)
        self._drop(call, "" if call.exchange.status else "it was cut")

    def _drop(self, call: _Call, why: str) -> None:
        del self._calls[call.number]
        self._account.free(call.size)
        if not self._calls:
            self._account.waits()
        self._upstream.pop(call.up.number, None)
        if call.task is not None:
            call.task.cancel()
        exchange = call.exchange
        call.count()
        exchange.error = exchange.error or why
        exchange.report()
        self._changed.set()
        if self._is_leaving and not self._calls:
            self._left.set()

    def _leave(self) -> None:
        """Accept no more requests; open calls continue."""
        if not self._is_leaving:
            self._is_leaving = True
            self._client.say_goaway(self._last)
            self._changed.set()
            if not self._calls:
                self._left.set()
