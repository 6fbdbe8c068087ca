"""What is done with requests and responses beyond judging them: the same for HTTP/1 and HTTP/2.

Rules of this file: no reading and no writing. A request that carries the placeholder of a credential to where it does
not belong is refused, whatever protocol it came by. Only what goes over TLS to a server that has proved who it is is
given the real value, and headers of a rule.
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
    """Of plain HTTP."""

    way: Way = "http"
    port = 80
    """The port that goes without saying."""
    opens_websockets = False
    """A rule that is for some requests may let a websocket through, which is judged as its request."""

    def __init__(self, credentials: tuple[Credential, ...] = ()) -> None:
        self.credentials = credentials

    async def reach(self, exchange: Exchange) -> Peer:
        """A connection to the server. Raises Unreachable."""
        return await exchange.reach()

    def request(self, exchange: Exchange, rule: HostRule | None, path: bytes, fields: Fields) -> Fields:  # noqa: ARG002
        """The fields that the server gets for those of the client, ``host`` and framing aside. Raises Refused."""
        if not self.credentials:
            return fields
        try:
            check_path(path, self.credentials)
            return insert_credentials(fields, self.credentials, exchange.host, exchange.port, secure=False)
        except MisusedPlaceholder as error:
            raise exchange.refuse(str(error)) from None

    def trailers(self, exchange: Exchange, fields: Fields) -> None:
        """What the client says behind a body. Raises Refused."""
        try:
            check_trailers(fields, self.credentials)
        except MisusedPlaceholder as error:
            raise exchange.refuse(str(error)) from None

    def response(self, exchange: Exchange, fields: Fields) -> Fields:  # noqa: ARG002
        """The fields that the client gets for those of the server."""
        return fields

    def watch(self) -> PlaceholderScan | None:
        """What looks at a request's body; None: nobody needs to."""
        return PlaceholderScan(self.credentials) if self.credentials else None
