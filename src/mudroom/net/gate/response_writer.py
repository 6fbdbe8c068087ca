"""The client's side of an HTTP/1 exchange: the only way by which a server's words reach an HTTP/1 client.

Rules of this file: each method that writes passes what it writes through the sanitizer of the door, so that no
credential gets back to the command; there is no other writer in ``dialogue.py`` and ``http.py``. Framing and hop-by-hop
fields are the gate's own. Where a response must be searched (``must_search``: a credential belongs to the host), one
that cannot be, because it is compressed, is refused.
"""

from __future__ import annotations

import h11

from mudroom.ext.inspection.core.sanitizer import Field, Sanitizer
from mudroom.net.gate.peer import Peer
from mudroom.net.protocol import refusal
from mudroom.net.protocol.head import LIMIT


class Unsearchable(Exception):
    """The server's words cannot be searched for credentials. The text is printable."""


_CODINGS = (b"content-encoding", b"grpc-encoding", b"sec-websocket-extensions")
"""Headers of a response that say how its body is compressed (RFC 9110 8.4, gRPC over HTTP/2, RFC 7692)."""


def check_coding(status: int, fields: list[Field]) -> None:
    """Raise Unsearchable if the body of a response is compressed."""
    if status in (204, 304):  # no body (RFC 9110 6.4.1); 304 has the headers of the one that the client has
        return
    for name, value in fields:
        if name.lower() in _CODINGS and value.strip().lower() not in (b"", b"identity"):
            raise Unsearchable(
                "the server has compressed its response although it was asked not to, and so it cannot be searched for"
                " the credential of this host"
            )


async def send_refusal(client: Peer, sanitizer: Sanitizer, status: int, text: str) -> None:
    """Send a response of the gate's own, which may quote a server."""
    await client.write(refusal.response(status, sanitizer.text(text)))


class ResponseWriter:
    """Reads the request's body from the client, too: h11 keeps both directions in one object."""

    def __init__(self, client: Peer, sanitizer: Sanitizer, *, must_search: bool) -> None:
        self._client = client
        self._sanitizer = sanitizer if sanitizer.searches else None
        self._must_search = must_search
        self._body = sanitizer.stream() if sanitizer.searches else None
        self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT + 4)
        """For reading. Nothing but this class sends by it."""

    async def informational(self, status: int, fields: list[Field]) -> None:
        await self._send(h11.InformationalResponse(status_code=status, headers=self._clean(fields)))

    def check(self, status: int, fields: list[Field]) -> None:
        """Raise Unsearchable if the response with these fields has to be searched and cannot be."""
        if self._must_search:
            check_coding(status, fields)

    async def head(self, status: int, fields: list[Field], reason: bytes) -> None:
        if self._sanitizer is not None:
            fields, reason = self._sanitizer.fields(fields), self._sanitizer.whole(reason)
        await self._send(h11.Response(status_code=status, headers=fields, reason=reason))

    async def data(self, piece: bytes) -> None:
        if self._body is not None:
            piece = self._body.see(bytes(piece))  # h11 gives a bytearray
        await self._send(h11.Data(data=piece))

    async def end(self) -> None:
        """Trailers of HTTP/1 are not passed on."""
        await self._send(h11.EndOfMessage())

    async def switch(self, fields: list[Field]) -> None:
        """Send the head of a websocket's ``101``."""
        lines = [b"%s: %s" % field for field in self._clean(fields)]
        lines = [b"HTTP/1.1 101 Switching Protocols", *lines, b"Connection: Upgrade", b"Upgrade: websocket", b"", b""]
        await self._client.write(b"\r\n".join(lines))

    def _clean(self, fields: list[Field]) -> list[Field]:
        return fields if self._sanitizer is None else self._sanitizer.fields(fields)

    async def _send(self, event: h11.Event) -> None:
        data = self.connection.send(event)
        if data:
            await self._client.write(data)
