"""Whom a plain HTTP request is for: its first line, its Host and its connection have to agree. Pure."""

from __future__ import annotations

from typing import NamedTuple

from mudroom.core.network.host import Authority, parse_authority
from mudroom.net.protocol.head import BadHead, RequestHead


class Target(NamedTuple):
    authority: Authority
    path: bytes

    def host_field(self, usual: int) -> bytes:
        """As clients write it: without the port that goes without saying."""
        return str(self.authority).removesuffix(f":{usual}").encode()


def parse_target(head: RequestHead, origin: Authority | None) -> Target:
    """Whom a request is for. ``origin``: whom the connection is for; None: it is a proxy's. Raises BadHead."""
    target = head.target
    if target[:7].lower() == b"http://":
        where, path = _split(target[7:])
    elif origin is not None and (target.startswith(b"/") or (target == b"*" and head.method == "OPTIONS")):
        where, path = None, target
    else:
        raise BadHead("this is a proxy: http://HOST/PATH, or CONNECT HOST:PORT" if origin is None else "no path")
    if b"#" in path:
        raise BadHead("a fragment is not for servers")
    named = []
    try:
        if where is not None:
            named.append(parse_authority(where, 80))
        host = head.get(b"host")
        if host is not None:
            named.append(parse_authority(host, 80 if origin is None else origin.port))
    except ValueError as error:
        raise BadHead(str(error)) from error
    authority = origin or named[0]
    for other in named:
        if other != authority:
            raise BadHead(f"it is for {authority} and for {other}", 403)
    return Target(authority, path)


def _split(rest: bytes) -> tuple[bytes, bytes]:
    at = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    path = rest[at:]
    return rest[:at], path if path.startswith(b"/") else b"/" + path
