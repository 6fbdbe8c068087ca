"""Changes to requests and responses beyond judging them: the same for HTTP/1 and HTTP/2.

Rules of this file: no reading and no writing. A request that carries the placeholder of a credential to a host that it
does not belong to is refused, in any protocol; so is one that carries a credential of the command's own to the host of
a credential. Real values, and the headers of a rule, are only put into requests over TLS to a server that has proved
its identity.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.flow import Way
from mudroom.core.network.har import keep_headers
from mudroom.core.network.host_rules import HostRule
from mudroom.ext.inspection.core.foreign_credential import describe_foreign, find_foreign, strictest
from mudroom.ext.inspection.core.placeholder import (
    Credential,
    MisusedPlaceholder,
    PlaceholderScan,
    check_path,
    check_trailers,
    insert_credentials,
)
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.guard import DoorGuard
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

    def __init__(self, guard: DoorGuard) -> None:
        self.credentials = guard.credentials
        self.sanitizer = guard.sanitizer
        """For all that goes to the client."""
        self._cookies = guard.cookies

    def must_search(self, exchange: Exchange) -> bool:
        """Return whether a response that cannot be searched is refused: a credential is for the host."""
        return bool(self.credentials) and bool(self._own(exchange))

    def _own(self, exchange: Exchange) -> list[Credential]:
        return [credential for credential in self.credentials if credential.host == exchange.host]

    async def reach(self, exchange: Exchange) -> Peer:
        """Connect to the server. Raise Unreachable."""
        return await exchange.reach()

    def request(self, exchange: Exchange, rule: HostRule | None, path: bytes, fields: Fields) -> tuple[bytes, Fields]:  # noqa: ARG002
        """Return path and fields for the server, made from the client's, without ``host`` and framing. Raise
        RefusedExchange."""
        rules = exchange.changing_rules()  # only what they say of foreign credentials holds without TLS
        if not self.credentials and not rules:
            return path, fields
        return self._insert(exchange, path, fields, rules, secure=False)

    def _insert(
        self, exchange: Exchange, path: bytes, fields: Fields, rules: Sequence[HostRule], *, secure: bool
    ) -> tuple[bytes, Fields]:
        """``rules``: of ``Exchange.changing_rules``."""
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
        foreign = find_foreign(path, fields, own, lambda pair: self._cookies.knows(exchange.host, pair))
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
        """Return the fields for the client, made from the server's."""
        if exchange.is_authorized:
            for name, value in fields:
                if name.lower() == b"set-cookie":
                    self._cookies.learn(exchange.host, self.sanitizer.whole(value))
        return fields

    def watch(self) -> PlaceholderScan | None:
        """Return a scanner for the request's body, or None if no scan is needed."""
        return PlaceholderScan(self.credentials) if self.credentials else None
