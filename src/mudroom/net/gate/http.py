"""Plain HTTP/1: every request on a connection is judged separately and written anew.

Rules of this file: ``net/protocol/head.py`` refuses ambiguous requests before h11 sees them. No bytes are passed on
unparsed: the request line, Host and the framing on both sides are the gate's own, so a server reads exactly what was
judged. Hop-by-hop fields are left out. After ``101`` a connection's bytes are not judged, so only ``websocket`` may be
switched to, and only by a rule without methods or paths.
"""

from __future__ import annotations

import h11

from mudroom.core.network.fork_host import is_fork_host
from mudroom.core.network.host import Authority
from mudroom.core.registry import part_or_none
from mudroom.core.tree.path import show
from mudroom.net.gate.dialogue import Dialogue, Message
from mudroom.net.gate.exchange import Exchange, RefusedExchange, Unreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.inspector import RefusedResponse, Rewrite, rewrite_of
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.request_head import IDLE, read_head
from mudroom.net.gate.response_writer import ResponseWriter, send_refusal
from mudroom.net.protocol import refusal as say
from mudroom.net.protocol.head import BadHead, RequestHead, as_judged, end_to_end
from mudroom.net.protocol.target import Target, parse_target
from mudroom.typing import NamedTuple

# --- Headers in requests between forks: the calling fork, and the number of forks that a request has passed ---
# Rules: the gate writes both into plain HTTP/1 requests to a fork. The client's own are removed in every spelling that
# a server may take for them: CGI and WSGI know names in capitals with ``_`` for each other character (RFC 3875 4.1.18),
# so only a name's letters and digits count. The hop count is the client's plus one: a server that passes its requests
# on, as a proxy does, passes the header on, and a circle ends. Pure.


FORK = b"x-mudroom-fork"
HOPS = b"x-mudroom-hops"
MOST_HOPS = 8
"""Forks that a request may pass."""
LOOP = f"the request has passed {MOST_HOPS} forks: it goes round in a circle"

Fields = list[tuple[bytes, bytes]]


def _bare(name: bytes) -> bytes:
    # CGI and WSGI write every other character as ``_`` (RFC 3875 4.1.18)
    return bytes(c for c in name.lower() if 97 <= c <= 122 or 48 <= c <= 57)


_OURS = {_bare(FORK), _bare(HOPS)}


def is_ours(name: bytes) -> bool:
    """Return whether a server may take a header with this name for one of the gate's headers."""
    return _bare(name) in _OURS


def with_caller(fields: Fields, caller: str) -> Fields | None:
    """Return a request's fields with the gate's headers instead of the client's; None if it has passed too many forks.
    ``caller``: the calling fork's label; empty: it has none, and the header is left out."""
    hops = 1 + max((_number(value) for name, value in fields if _bare(name) == _bare(HOPS)), default=0)
    if hops > MOST_HOPS:
        return None
    kept = [(name, value) for name, value in fields if not is_ours(name)]
    ours = [(FORK, caller.encode())] if caller else []
    return [*kept, *ours, (HOPS, b"%d" % hops)]


def _number(value: bytes) -> int:
    """Return the largest number in a list; items that are not numbers are ignored."""
    numbers = [part.strip() for part in value.split(b",")]
    return max((MOST_HOPS if len(part) > 4 else int(part) for part in numbers if part.isdigit()), default=0)


_SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that may be sent again (RFC 9110 9.2.1)."""


class Link(NamedTuple):
    """A server connection that further requests from the same client may use."""

    authority: Authority
    peer: Peer
    address: str


async def serve_http(
    client: Peer,
    guard: Guard,
    head: RequestHead | None = None,
    origin: Authority | None = None,
    link: Link | None = None,
    rewrite: Rewrite | None = None,
) -> None:
    """Serve a client connection's requests to its end. ``head``: the first request's head, if already read. ``origin``:
    as for ``parse_target``. ``link``: an open server connection. ``rewrite``: None: plain HTTP's, by the guard's
    current rules."""
    server = _RequestServer(client, guard, origin, link, rewrite)
    endpoint = (origin.host.text, origin.port) if origin else ("", 0)
    try:
        while (head := head or await read_head(client, IDLE)) is not None and await server.serve(head):
            head = None
    except BadHead as error:
        Exchange(guard, server.rewrite.way, *endpoint).refuse(str(error))
        await send_refusal(client, guard.sanitizer, error.status, str(error))
    finally:
        server.close()


class _RequestServer:
    def __init__(
        self,
        client: Peer,
        guard: Guard,
        origin: Authority | None,
        link: Link | None,
        rewrite: Rewrite | None,
    ) -> None:
        self._client = client
        self._guard = guard
        self._origin = origin
        self._link = link
        self._rewrite = rewrite

    @property
    def rewrite(self) -> Rewrite:
        return self._rewrite or rewrite_of(self._guard)

    async def serve(self, head: RequestHead) -> bool:
        """Serve one request until its response ends. Return whether another may follow. Raise BadHead, PeerGone."""
        target = parse_target(head, self._origin)
        host, port = target.authority.host.text, target.authority.port
        method, path = as_judged(head.method, show(target.path.partition(b"?")[0]), head.fields)
        exchange = Exchange(self._guard, self.rewrite.way, host, port, method, path)
        try:
            return await self._exchange(exchange, head, target)
        except RefusedExchange as refusal:
            await self._refuse(403, say.denied(host, port, str(refusal)))
        except Unreachable as failure:
            await self._refuse(failure.status, str(failure))
        except (PeerGone, RefusedResponse, h11.ProtocolError) as error:
            await self._fail(exchange, str(error))
        finally:
            exchange.error = exchange.error or ("" if exchange.status else "it was cut")
            exchange.report()
        return False

    async def _fail(self, exchange: Exchange, why: str) -> None:
        """Send an error response if no response has begun; otherwise cut the connection, so that the response does not
        look complete."""
        exchange.error = exchange.error or why
        if exchange.status or self._client.lost:
            self._client.cut()
        else:
            await self._refuse(502, f"{exchange.host}: {exchange.error}")

    async def _refuse(self, status: int, text: str) -> None:
        await send_refusal(self._client, self._guard.sanitizer, status, text)

    def close(self) -> None:
        if self._link is not None:
            self._link.peer.cut()
            self._link = None

    async def _exchange(self, exchange: Exchange, head: RequestHead, target: Target) -> bool:
        decision = await exchange.admit(self._client)
        upgrade = head.get(b"upgrade")
        if upgrade is not None and upgrade.lower() == b"websocket":
            is_partial = decision.rule is not None and (decision.rule.methods or decision.rule.paths)
            if is_partial and not self.rewrite.opens_websockets:
                raise exchange.refuse(
                    "its rule is for some requests only, and the content of a websocket cannot be judged"
                )
        else:
            upgrade = None
        fields, writer = end_to_end(head.fields), ResponseWriter
        if exchange.holding is not None:
            effects = part_or_none("effects", "gate")
            if effects is None:
                raise exchange.refuse(
                    "its rule holds what is sent there, and this installation lacks mudroom/ext/effects"
                )
            screen = effects.HeldRequest(exchange, head, target.path, self.rewrite)
            if screen.is_effect:
                is_kept: bool = await screen.take(self._client, fields)
                return is_kept
            fields, is_answered = await screen.prepare(self._client, fields)
            if is_answered:
                return False
            writer = screen.writer
        path, fields = self.rewrite.request(exchange, decision.rule, target.path, fields)
        if is_fork_host(exchange.host):
            named = with_caller(fields, self._guard.fork)
            if named is None:
                raise exchange.refuse(LOOP)
            fields = named
            links = part_or_none("agents", "gate")
            writer = writer if links is None else links.writer_for(exchange, head.method, target.path)
        message = Message(head, target._replace(path=path), fields, upgrade is not None)
        is_reused = self._link is not None
        peer = await self._server(exchange, target.authority)
        exchange.begin()
        try:
            return await Dialogue(self._client, peer, exchange, message, self.rewrite, writer).run()
        except (PeerGone, h11.RemoteProtocolError):
            if not is_reused or exchange.received or head.has_body or head.method not in _SAFE or self._client.lost:
                raise
        # The server had closed a kept-alive connection, as it may at any time (RFC 9112 9.3.1 and 9.5).
        self.close()
        exchange.error, exchange.sent = "", 0
        peer = await self._server(exchange, target.authority)
        return await Dialogue(self._client, peer, exchange, message, self.rewrite, writer).run()

    async def _server(self, exchange: Exchange, authority: Authority) -> Peer:
        link = self._link
        is_fit = link is not None and link.authority == authority and link.peer.is_idle
        if link is not None and is_fit and exchange.refusal_of_reuse(link.address) is None:
            exchange.reuse(link.address)
            return link.peer
        self.close()
        peer = await self.rewrite.reach(exchange)
        self._link = Link(authority, peer, exchange.address)
        return peer
