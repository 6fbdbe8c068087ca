"""The interface between the gate and the part that inspects (``ext/inspection``), and the behaviour without inspection.

Rules of this file: credential values come with an inspector alone, so without an inspector no response holds any. A
guard that needs an inspector and has none denies (``Guard.look``).
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.network.flow import Way
from mudroom.core.network.host_rules import HostRule
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.relay import relay
from mudroom.net.gate.sanitizer import CredentialSanitizer, Field
from mudroom.net.protocol.client_hello import Kind
from mudroom.typing import Protocol


class RefusedResponse(Exception):
    """A server's response must not be passed on. The text is printable."""


class Rewrite(Protocol):
    """Changes to HTTP/1 requests and responses beyond judging them."""

    way: Way
    port: int
    """The default port."""
    opens_websockets: bool
    """Whether a rule for some requests only may let a websocket through, judged by its request."""

    @property
    def sanitizer(self) -> CredentialSanitizer | None:
        """For all data that goes to the client; None: there are no credentials."""

    async def reach(self, exchange: Exchange) -> Peer:
        """Connect to the server. Raise Unreachable."""

    def request(
        self, exchange: Exchange, rule: HostRule | None, path: bytes, fields: list[Field]
    ) -> tuple[bytes, list[Field]]:
        """Return path and fields for the server, made from the client's, without ``host`` and framing. Raise
        RefusedExchange."""

    def watch(self, exchange: Exchange) -> Callable[[bytes], None] | None:
        """Return a function that takes the request body's pieces, each before it is passed on, and raises
        RefusedExchange; None if no piece is refused."""

    def response(self, exchange: Exchange, fields: list[Field]) -> list[Field]:
        """Return the fields for the client, made from the server's."""

    def check(self, exchange: Exchange, status: int, fields: list[Field]) -> None:
        """Raise RefusedResponse if the response with these fields must not be passed on."""

    async def relay(self, client: Peer, server: Peer) -> None:
        """Relay a websocket after its ``101``."""


class Inspector(Protocol):
    """Inspects one guard's TLS connections, inserts its credentials, and keeps their values from the command."""

    @property
    def sanitizer(self) -> CredentialSanitizer | None:
        """For all data that goes to clients and into flows; None: there are no credentials."""

    @property
    def plain(self) -> Rewrite:
        """For requests without TLS."""

    async def inspect(self, client: Peer, server: Peer, exchange: Exchange, kind: Kind) -> None:
        """Serve a connection that is to be inspected to its end. Raise RefusedExchange, PeerGone."""

    async def decline(self, client: Peer, exchange: Exchange, status: int, reason: str) -> bool:
        """Answer the first request within a refused client's TLS. Return False, without a byte sent, if that is not
        possible. Raise PeerGone."""


class _Unchanged:
    """Requests and responses pass as they are."""

    way: Way = "http"
    port = 80
    opens_websockets = False
    sanitizer = None

    async def reach(self, exchange: Exchange) -> Peer:
        return await exchange.reach()

    def request(
        self, _exchange: Exchange, _rule: HostRule | None, path: bytes, fields: list[Field]
    ) -> tuple[bytes, list[Field]]:
        return path, fields

    def watch(self, _exchange: Exchange) -> None:
        return None

    def response(self, _exchange: Exchange, fields: list[Field]) -> list[Field]:
        return fields

    def check(self, _exchange: Exchange, _status: int, _fields: list[Field]) -> None:
        return None

    async def relay(self, client: Peer, server: Peer) -> None:
        await relay(client, server)


_UNCHANGED = _Unchanged()


def inspector_of(guard: Guard) -> Inspector | None:
    """Return the guard's inspector, by the current rules."""
    inspector: Inspector | None = guard.inspector
    return inspector


def rewrite_of(guard: Guard) -> Rewrite:
    """Return the changes to requests without TLS, by the current rules."""
    inspector = inspector_of(guard)
    return _UNCHANGED if inspector is None else inspector.plain
