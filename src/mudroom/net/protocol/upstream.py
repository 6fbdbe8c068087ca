"""Parse the URL for the proxy that the host's network requires. Pure."""

from __future__ import annotations

import re

from mudroom.core.network.host import Authority, parse_authority
from mudroom.typing import NamedTuple

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


class Upstream(NamedTuple):
    authority: Authority
    credentials: bytes
    """USER:PASSWORD; empty: none. Never in a flow or a message."""

    def __str__(self) -> str:
        return f"proxy {self.authority}"


def parse_upstream(text: str) -> Upstream:
    """Parse ``http://[USER:PASSWORD@]HOST:PORT``, as in HTTPS_PROXY; the default port is 80. Raise ValueError, without
    the password in its message."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = "http", text
    if scheme.lower() != "http":
        raise ValueError(f"a proxy that is reached by {scheme.lower()[:16]} is not supported; by http it is")
    user, _, address = rest.rstrip("/").rpartition("@")
    authority = parse_authority(address.encode("utf-8", "surrogateescape"), 80)
    credentials = _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), user.encode("utf-8", "surrogateescape"))
    return Upstream(authority, credentials)
