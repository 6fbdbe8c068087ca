"""The A2A card that an agent in a fork serves, as another fork reads it: its loopback URLs name the agent's fork.

Inside its own fork an agent knows itself as ``http://localhost:9123/a2a``; whoever reads that would look in its own
network. Compressed, signed and other content, and more than ``MOST`` bytes, stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from mudroom.core.network.fork_host import ENDPOINT_PORT
from mudroom.core.network.host import parse_authority
from mudroom.core.network.loopback import is_loopback
from mudroom.ext.agents.core.a2a import WELL_KNOWN, WELL_KNOWN_OLD
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.response_writer import ResponseWriter
from mudroom.net.gate.sanitizer import CredentialSanitizer, Field

MOST = 1 << 20
_ANY = ("0.0.0.0", "::")  # servers that listen at all addresses name themselves so


def writer_for(
    exchange: Exchange, method: str, path: bytes
) -> Callable[[Peer, CredentialSanitizer | None], ResponseWriter]:
    if method != "GET" or path.partition(b"?")[0].decode("latin-1") not in (WELL_KNOWN, WELL_KNOWN_OLD):
        return ResponseWriter
    return lambda client, sanitizer: _CardWriter(client, sanitizer, exchange.host, exchange.port)


def readdressed(content: bytes, host: str, port: int) -> bytes:
    """Return a card with the address at which it was read instead of loopback. Another port stays that port."""
    try:
        card = json.loads(content)
        if not isinstance(card, dict) or "signatures" in card:
            return content
        interfaces = [*card.get("supportedInterfaces", ()), *card.get("additionalInterfaces", ())]
        before = json.dumps(card)
        for holder in (card, *interfaces):
            if isinstance(holder.get("url"), str):
                holder["url"] = _url(holder["url"], host, port)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return content
    return content if json.dumps(card) == before else json.dumps(card).encode()


def _url(url: str, host: str, port: int) -> str:
    scheme, mark, rest = url.partition("://")
    if scheme.lower() != "http" or not mark:
        return url
    at = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    own = parse_authority(rest[:at].encode(), 80)
    if not is_loopback(own.host.text) and own.host.text not in _ANY:
        return url
    shown = port if port == ENDPOINT_PORT else own.port
    return f"http://{host}{'' if shown == ENDPOINT_PORT else f':{shown}'}{rest[at:]}"


class _CardWriter(ResponseWriter):
    """Holds a card back until it is whole. Owner: the event loop of the gate's process."""

    def __init__(self, client: Peer, sanitizer: CredentialSanitizer | None, host: str, port: int) -> None:
        super().__init__(client, sanitizer)
        self._place = (host, port)
        self._held: bytearray | None = None
        """The content so far; None: it is passed on as it comes."""
        self._head: tuple[int, list[Field], bytes] = (200, [], b"")

    async def head(self, status: int, fields: list[Field], reason: bytes) -> None:
        if status != 200 or any(name.lower() == b"content-encoding" for name, _value in fields):
            await super().head(status, fields, reason)
            return
        self._held, self._head = bytearray(), (status, fields, reason)

    async def data(self, piece: bytes) -> None:
        if self._held is None:
            await super().data(piece)
            return
        self._held += piece
        if len(self._held) > MOST:
            held, self._held = bytes(self._held), None
            await super().head(*self._head)
            await super().data(held)

    async def end(self) -> None:
        if self._held is not None:
            content, (status, fields, reason) = readdressed(bytes(self._held), *self._place), self._head
            gone = (b"content-length", b"transfer-encoding", b"etag")
            fields = [field for field in fields if field[0].lower() not in gone]
            await super().head(status, [*fields, (b"Content-Length", b"%d" % len(content))], reason)
            await super().data(content)
        await super().end()
