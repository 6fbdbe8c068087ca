"""Determine the destination of a plain HTTP request: its first line, its Host and its connection must agree. Pure."""

from __future__ import annotations

from typing import NamedTuple

from mudroom.core.network.host import Authority, parse_authority
from mudroom.net.protocol.head import BadHead, RequestHead


class Target(NamedTuple):
    authority: Authority
    path: bytes

    def host_field(self, usual: int) -> bytes:
        """Return the Host field as clients write it: without the default port ``usual``."""
        return str(self.authority).removesuffix(f":{usual}").encode()


def parse_target(head: RequestHead, origin: Authority | None) -> Target:
    """Return the destination of a request. ``origin``: the connection's destination; None: the client uses the gate as
    a proxy. Raise BadHead."""
    target = head.target
    if target[:7].lower() == b"http://":
        absolute, path = _split(target[7:])
    elif origin is not None and (target.startswith(b"/") or (target == b"*" and head.method == "OPTIONS")):
        absolute, path = None, target
    else:
        raise BadHead("this is a proxy: http://HOST/PATH, or CONNECT HOST:PORT" if origin is None else "no path")
    if b"#" in path:
        raise BadHead("a fragment is not for servers")
    authorities = []
    try:
        if absolute is not None:
            authorities.append(parse_authority(absolute, 80))
        host = head.get(b"host")
        if host is not None:
            authorities.append(parse_authority(host, 80 if origin is None else origin.port))
    except ValueError as error:
        raise BadHead(str(error)) from error
    authority = origin or authorities[0]
    for other in authorities:
        if other != authority:
            raise BadHead(f"it is for {authority} and for {other}", 403)
    return Target(authority, path)


def _split(rest: bytes) -> tuple[bytes, bytes]:
    at = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    path = rest[at:]
    return rest[:at], path if path.startswith(b"/") else b"/" + path
