"""Changes to requests and responses beyond judging them: the same for HTTP/1 and HTTP/2.

Rules of this file: no reading and no writing. A request that carries the placeholder of a credential to a host that it
does not belong to is refused, in any protocol. Real values, and the headers of a rule, are only put into requests over
TLS to a server that has proved its identity.
"""

from __future__ import annotations

from mudroom.core.network.flow import Way
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.placeholder import (
    Credential,
    MisusedPlaceholder,
    PlaceholderScan,
    check_path,
    check_trailers,
    insert_credentials,
)
from mudroom.core.network.sanitizer import Sanitizer
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.peer import Peer

Fields = list[tuple[bytes, bytes]]

_COMPRESSION = (b"accept-encoding", b"grpc-accept-encoding", b"sec-websocket-extensions", b"te")
"""Headers by which a client offers to take compressed data (RFC 9110 12.5.3, gRPC over HTTP/2, RFC 7692, RFC 9110
10.1.4)."""


def without_compression(fields: Fields) -> Fields:
    """Return a request's fields that ask for a response that can be searched."""
    kept = [
        (name, value)
        for name, value in fields
        if name.lower() not in _COMPRESSION or (name.lower() == b"te" and value.lower() == b"trailers")
    ]
    return [*kept, (b"accept-encoding", b"identity")]


class Rewrite:
    """The changes for plain HTTP."""

    way: Way = "http"
    port = 80
    """The default port."""
    opens_websockets = False
    """Whether a rule for some requests only may let a websocket through, judged by its request."""

    def __init__(self, credentials: tuple[Credential, ...], sanitizer: Sanitizer) -> None:
        self.credentials = credentials
        self.sanitizer = sanitizer
        """For all that goes to the client."""

    def must_search(self, exchange: Exchange) -> bool:
        """Return whether a response that cannot be searched is refused: a credential is for the host."""
        return any(credential.host == exchange.host for credential in self.credentials)

    async def reach(self, exchange: Exchange) -> Peer:
        """Connect to the server. Raise Unreachable."""
        return await exchange.reach()

    def request(self, exchange: Exchange, rule: HostRule | None, path: bytes, fields: Fields) -> Fields:  # noqa: ARG002
        """Return the fields for the server, made from the client's, without ``host`` and framing. Raise
        RefusedExchange."""
        if not self.credentials:
            return fields
        return self._insert(exchange, path, fields, secure=False)

    def _insert(self, exchange: Exchange, path: bytes, fields: Fields, *, secure: bool) -> Fields:
        try:
            check_path(path, self.credentials)
            fields = insert_credentials(fields, self.credentials, exchange.host, exchange.port, secure=secure)
        except MisusedPlaceholder as error:
            raise exchange.refuse(str(error)) from None
        return without_compression(fields) if self.must_search(exchange) else fields

    def trailers(self, exchange: Exchange, fields: Fields) -> None:
        """Check the client's trailers. Raise RefusedExchange."""
        try:
            check_trailers(fields, self.credentials)
        except MisusedPlaceholder as error:
            raise exchange.refuse(str(error)) from None

    def response(self, exchange: Exchange, fields: Fields) -> Fields:  # noqa: ARG002
        """Return the fields for the client, made from the server's."""
        return fields

    def watch(self) -> PlaceholderScan | None:
        """Return a scanner for the request's body, or None if no scan is needed."""
        return PlaceholderScan(self.credentials) if self.credentials else None
