"""Changes to requests and responses beyond judging them: the same for HTTP/1 and HTTP/2.

Rules of this file: no reading and no writing. In any protocol, a request is refused if it carries a placeholder to a
host that its credential does not belong to, or a command's own credential to a host for which a credential is
configured. Real values, and a rule's headers, are only put into requests over TLS to a server that has proved its
identity. If a response must be searched (``must_search``: a credential belongs to the host) and cannot be, because it
is compressed, it is refused.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from mudroom.core.network.flow import Way
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Credential
from mudroom.core.text.regex import regex
from mudroom.ext.inspection.foreign_credential import describe_foreign, find_foreign, strictest
from mudroom.ext.inspection.placeholder import (
    MisusedPlaceholder,
    PlaceholderScan,
    check_path,
    check_trailers,
    insert_credentials,
)
from mudroom.ext.inspection.sanitizer import Sanitizer
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.inspector import RefusedResponse
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.relay import LINGER, relay
from mudroom.net.gate.sanitizer import BodySanitizer

# --- Websocket frames from a server (RFC 6455 5.2), with their messages' payload changed ---
# Rules of this file: heads are passed on as they are, and payloads keep their length. The filter that changes a message
# gets it as one text, in however many frames it comes; a control frame, which may stand between, is its own text.


_CONTROL, _FINAL, _RESERVED, _MASKED = 0x8, 0x80, 0x70, 0x80
_LONGEST_CONTROL = 125


class BadMessageFrame(ValueError):
    """The text is printable."""


class MessageFrames:
    def __init__(self, new_filter: Callable[[], BodySanitizer]) -> None:
        """``new_filter`` returns the filter for one message."""
        self._new_filter = new_filter
        self._message = self._current = new_filter()
        self._buffer = bytearray()
        self._left = 0
        """Payload bytes in the current frame that have not arrived."""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to pass on; an incomplete head is kept. Raise BadMessageFrame."""
        buffer, parts = self._buffer, []
        buffer += data
        while buffer:
            if self._left:
                piece = bytes(buffer[: self._left])
                self._left -= len(piece)
                parts.append(self._current.see(piece))
            else:
                length = _head_length(buffer)
                if len(buffer) < length:
                    break
                piece = bytes(buffer[:length])
                self._begin(piece)
                parts.append(piece)
            del buffer[: len(piece)]
        return b"".join(parts)

    def _begin(self, head: bytes) -> None:
        code, length = head[0] & 0xF, head[1] & 0x7F
        if head[0] & _RESERVED:
            raise BadMessageFrame(
                "a message of the websocket is compressed, or uses an extension that was not agreed on"
            )
        if head[1] & _MASKED:
            raise BadMessageFrame("the server masks the messages of its websocket, which only clients do")
        if code & _CONTROL:
            if length > _LONGEST_CONTROL or not head[0] & _FINAL:
                raise BadMessageFrame("a control frame of the websocket is too long, or in parts")
            self._current = self._new_filter()
        else:
            if code:
                self._message = self._new_filter()
            self._current = self._message
        self._left = int.from_bytes(head[2:], "big") if length > _LONGEST_CONTROL else length


def _head_length(data: bytearray) -> int:
    """Return a head's length; 2 until its second byte is known."""
    return {126: 4, 127: 10}.get(data[1] & 0x7F, 2) if len(data) > 1 else 2


async def relay_messages(client: Peer, server: Peer, new_filter: Callable[[], BodySanitizer]) -> None:
    """Relay the client's bytes as they are, and the server's messages through filters, until both ends have finished,
    or either is lost. Raise PeerGone if a frame cannot be searched."""
    frames = MessageFrames(new_filter)
    try:
        client.pass_to(server)
        while server.buffer or await server.more():
            piece = frames.feed(server.take(len(server.buffer)))
            if client.lost:
                return
            await client.write(piece)
        if server.error:
            client.reset()
            return
        client.finish()
        if not client.ended:  # wait for the client's close frame and end
            await asyncio.wait({client.over}, timeout=LINGER)
    except BadMessageFrame as error:
        raise PeerGone(str(error)) from None
    finally:
        client.end()
        server.cut()


Fields = list[tuple[bytes, bytes]]

_COMPRESSION = (b"accept-encoding", b"grpc-accept-encoding", b"sec-websocket-extensions", b"te")
"""Headers by which a client accepts compressed data (RFC 9110 12.5.3, gRPC over HTTP/2, RFC 7692, RFC 9110 10.1.4)."""
_CODINGS = (b"content-encoding", b"grpc-encoding", b"sec-websocket-extensions")
"""Response headers that say how the body is compressed (RFC 9110 8.4, gRPC over HTTP/2, RFC 7692)."""
_MOST_COOKIES = 1_024
HIDDEN = "(not kept)"
_SHOWN = regex(
    r"accept(-[a-z]+)?|access-control-[a-z-]+|age|allow|alt-svc|cache-control|connection|content-(?!md5|digest)[a-z-]+|date|depth"
    r"|expect|expires|from|git-protocol|grpc-[a-z-]+|host|if-(un)?modified-since|keep-alive|last-modified|link|location"
    r"|(x-)?(request|correlation)-id|max-forwards|origin|pragma|prefer|priority|range|referer|retry-after|sec-(ch|fetch|gpc)[a-z-]*|sec-websocket-version"
    r"|server|strict-transport-security|te|trailer|transfer-encoding|upgrade(-insecure-requests)?|user-agent|vary|via|warning"
    r"|x-(ratelimit|rate-limit|content-type|frame|powered|requested|xss|github-(api-version|media-type|request-id))[a-z-]*"
)
"""Headers whose value is known to hold no secret."""
_LONGEST_VALUE = 1024
MOST_KEPT = 64
"""Headers that a flow keeps of each message."""


def keep_headers(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Return the headers that a flow keeps: only the name, unless the value is known to hold no secret."""
    return tuple(
        (name, value.decode("latin-1")[:_LONGEST_VALUE] if _SHOWN.fullmatch(name) else HIDDEN)
        for name, value in ((name.decode("latin-1").lower(), value) for name, value in fields[:MOST_KEPT])
    )


def without_compression(fields: Fields) -> Fields:
    """Return the request's fields, changed so that the response can be searched."""
    kept = [
        (name, value)
        for name, value in fields
        if name.lower() not in _COMPRESSION or (name.lower() == b"te" and value.lower() == b"trailers")
    ]
    return [*kept, (b"accept-encoding", b"identity")]


class KnownCookies:
    """Cookies that servers have set in responses to requests with the user's own credentials.

    A command may send these back to the host that has set them, and no others where a credential is configured: a
    cookie from elsewhere can be a stranger's session. The least recently set cookies are forgotten.
    """

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def learn(self, host: str, value: bytes) -> None:
        """``value``: a ``Set-Cookie`` header's (RFC 6265 4.1.1)."""
        self._pairs[host, value.partition(b";")[0].strip()] = None
        self._pairs.move_to_end((host, value.partition(b";")[0].strip()))
        if len(self._pairs) > _MOST_COOKIES:
            self._pairs.popitem(last=False)

    def knows(self, host: str, pair: bytes) -> bool:
        return (host, pair) in self._pairs


class CredentialRewrite:
    """The changes for plain HTTP (``net/gate/inspector.py``)."""

    way: Way = "http"
    port = 80
    opens_websockets = False

    def __init__(self, credentials: Sequence[Credential], sanitizer: Sanitizer | None, cookies: KnownCookies) -> None:
        """``sanitizer``: None if there are no credentials."""
        self.credentials = credentials
        self.sanitizer = sanitizer
        self.cookies = cookies

    def must_search(self, exchange: Exchange) -> bool:
        """Return whether a response that cannot be searched is refused: a credential is for the host."""
        return bool(self.credentials) and bool(self._own(exchange))

    async def reach(self, exchange: Exchange) -> Peer:
        return await exchange.reach()

    def _own(self, exchange: Exchange) -> list[Credential]:
        return [credential for credential in self.credentials if credential.host == exchange.host]

    def request(self, exchange: Exchange, rule: HostRule | None, path: bytes, fields: Fields) -> tuple[bytes, Fields]:  # noqa: ARG002
        rules = exchange.changing_rules()  # without TLS, only their ``foreign`` setting applies
        if not self.credentials and not rules:
            return path, fields
        return self._insert(exchange, path, fields, rules, secure=False)

    def _insert(
        self, exchange: Exchange, path: bytes, fields: Fields, rules: Sequence[HostRule], *, secure: bool
    ) -> tuple[bytes, Fields]:
        """Return path and fields with real values and without foreign credentials. ``rules``: from
        ``Exchange.changing_rules``."""
        try:
            check_path(path, self.credentials)
            with_values = insert_credentials(fields, self.credentials, exchange.host, exchange.port, secure=secure)
        except MisusedPlaceholder as error:
            raise exchange.refuse(str(error)) from None
        kept_path, kept = self._without_foreign(exchange, path, fields, rules)
        if (kept_path, kept) != (path, fields):
            path, fields = kept_path, kept
            with_values = insert_credentials(fields, self.credentials, exchange.host, exchange.port, secure=secure)
        exchange.is_authorized = with_values != fields
        return path, without_compression(with_values) if self.must_search(exchange) else with_values

    def _without_foreign(
        self, exchange: Exchange, path: bytes, fields: Fields, rules: Sequence[HostRule]
    ) -> tuple[bytes, Fields]:
        own = self._own(exchange)
        action = strictest(own, [rule.foreign for rule in rules if rule.foreign])
        if action == "allow":
            return path, fields
        foreign = find_foreign(path, fields, own, lambda pair: self.cookies.knows(exchange.host, pair))
        if foreign.where and exchange.request:
            exchange.request = keep_headers(foreign.fields)
        if foreign.where and action == "refuse":
            raise exchange.refuse(describe_foreign(foreign, exchange.host, own))
        return foreign.path, foreign.fields

    def trailers(self, exchange: Exchange, fields: Fields) -> None:
        """Check the client's trailers. Raise RefusedExchange."""
        try:
            check_trailers(fields, self.credentials)
        except MisusedPlaceholder as error:
            raise exchange.refuse(str(error)) from None
        if self._without_foreign(exchange, b"", fields, exchange.changing_rules())[1] != fields:
            raise exchange.refuse("a credential is in a trailer")

    def response(self, exchange: Exchange, fields: Fields) -> Fields:
        if exchange.is_authorized and self.sanitizer is not None:
            for name, value in fields:
                if name.lower() == b"set-cookie":
                    self.cookies.learn(exchange.host, self.sanitizer.whole(value))
        return fields

    def check(self, exchange: Exchange, status: int, fields: Fields) -> None:
        if not self.must_search(exchange):
            return
        if status in (204, 304):  # no body (RFC 9110 6.4.1); 304 has the headers of the client's cached response
            return
        for name, value in fields:
            if name.lower() in _CODINGS and value.strip().lower() not in (b"", b"identity"):
                raise RefusedResponse(
                    "the server has compressed its response although it was asked not to, and so it cannot be searched"
                    " for the credential of this host"
                )

    def scan(self) -> PlaceholderScan | None:
        """Return a scanner for the request's body, or None if no scan is needed."""
        return PlaceholderScan(self.credentials) if self.credentials else None

    def watch(self, exchange: Exchange) -> Callable[[bytes], None] | None:
        scan = self.scan()
        if scan is None:
            return None

        def see(piece: bytes) -> None:
            try:
                scan.see(piece)
            except MisusedPlaceholder as error:
                raise exchange.refuse(str(error)) from None

        return see

    async def relay(self, client: Peer, server: Peer) -> None:
        if self.sanitizer is None:
            await relay(client, server)
        else:
            await relay_messages(client, server, self.sanitizer.stream)
