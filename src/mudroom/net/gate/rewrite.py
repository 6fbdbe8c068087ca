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
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.peer import Peer

Fields = list[tuple[bytes, bytes]]


class Rewrite:
    """The changes for plain HTTP."""

    way: Way = "http"
    port = 80
    """The default port."""
    opens_websockets = False
    """Whether a rule for some requests only may let a websocket through, judged by its request."""

    def __init__(self, credentials: tuple[Credential, ...] = ()) -> None:
        self.credentials = credentials

    async def reach(self, exchange: Exchange) -> Peer:
        """Connect to the server. Raise Unreachable."""
        return await exchange.reach()

    def request(self, exchange: Exchange, rule: HostRule | None, path: bytes, fields: Fields) -> Fields:  # noqa: ARG002
        """Return the fields for the server, made from the client's, without ``host`` and framing. Raise
        RefusedExchange."""
        if not self.credentials:
            return fields
        try:
            check_path(path, self.credentials)
            return insert_credentials(fields, self.credentials, exchange.host, exchange.port, secure=False)
        except MisusedPlaceholder as error:
            raise exchange.refuse(str(error)) from None

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
