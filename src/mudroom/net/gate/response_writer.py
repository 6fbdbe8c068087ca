"""The client's side of an HTTP/1 exchange: the only path from a server's response to an HTTP/1 client.

Rules of this file: each method that writes uses the guard's sanitizer, so that no credential gets back to the command;
there is no other writer in ``dialogue.py`` and ``http.py``. Framing and hop-by-hop fields are the gate's own.
"""

from __future__ import annotations

import h11

from mudroom.net.gate.peer import Peer
from mudroom.net.gate.sanitizer import CredentialSanitizer, Field
from mudroom.net.protocol import refusal
from mudroom.net.protocol.head import LIMIT


async def send_refusal(client: Peer, sanitizer: CredentialSanitizer | None, status: int, text: str) -> None:
    """Send the gate's own response, which may quote a server."""
    await client.write(refusal.response(status, text if sanitizer is None else sanitizer.text(text)))


class ResponseWriter:
    """Reads the request's body from the client, too: h11 keeps both directions in one object."""

    def __init__(self, client: Peer, sanitizer: CredentialSanitizer | None) -> None:
        self._client = client
        self._sanitizer = sanitizer
        self._body = None if sanitizer is None else sanitizer.stream()
        self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT + 4)
        """For reading. Only this class sends by it."""

    async def informational(self, status: int, fields: list[Field]) -> None:
        await self._send(h11.InformationalResponse(status_code=status, headers=self._clean(fields)))

    async def head(self, status: int, fields: list[Field], reason: bytes) -> None:
        if self._sanitizer is not None:
            fields, reason = self._sanitizer.fields(fields), self._sanitizer.whole(reason)
        await self._send(h11.Response(status_code=status, headers=fields, reason=reason))

    async def data(self, piece: bytes) -> None:
        if self._body is not None:
            piece = self._body.see(bytes(piece))  # h11 gives a bytearray
        await self._send(h11.Data(data=piece))

    async def end(self) -> None:
        """End the response. HTTP/1 trailers are not passed on."""
        await self._send(h11.EndOfMessage())

    async def switch(self, fields: list[Field]) -> None:
        """Send a websocket's ``101`` head."""
        lines = [b"%s: %s" % field for field in self._clean(fields)]
        lines = [b"HTTP/1.1 101 Switching Protocols", *lines, b"Connection: Upgrade", b"Upgrade: websocket", b"", b""]
        await self._client.write(b"\r\n".join(lines))

    def _clean(self, fields: list[Field]) -> list[Field]:
        return fields if self._sanitizer is None else self._sanitizer.fields(fields)

    async def _send(self, event: h11.Event) -> None:
        data = self.connection.send(event)
        if data:
            await self._client.write(data)
