"""Determine the destination of a plain HTTP request: its first line, its Host and its connection must agree. Pure."""

from __future__ import annotations

from mudroom.core.network.host import Authority, parse_authority
from mudroom.core.network.host_pattern import LOCALHOST, LOCALHOST_ADDRESSES
from mudroom.net.protocol.head import BadHead, RequestHead
from mudroom.typing import NamedTuple


class Target(NamedTuple):
    authority: Authority
    path: bytes
    name: Authority | None = None
    """The client's own name for a place on this machine's loopback, if it differs."""

    def host_field(self, usual: int) -> bytes:
        """Return the Host field as clients write it: without the default port ``usual``."""
        return str(self.name or self.authority).removesuffix(f":{usual}").encode()


def parse_target(head: RequestHead, origin: Authority | None) -> Target:
    """Return a request's destination. ``origin``: the connection's destination; None: the client uses the gate as a
    proxy. Raise BadHead."""
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
    authority, name = origin or authorities[0], None
    for other in authorities:
        if origin is not None and is_same_place(origin, other):
            name = other
        elif other != authority:
            raise BadHead(f"it is for {authority} and for {other}", 403)
    return Target(authority, path, name)


def is_same_place(origin: Authority, other: Authority) -> bool:
    """Return whether both name the same port on this machine's loopback: ``localhost`` stands for its addresses."""
    names = (LOCALHOST, *LOCALHOST_ADDRESSES)
    return origin.port == other.port and origin.host.text in LOCALHOST_ADDRESSES and other.host.text in names


def _split(rest: bytes) -> tuple[bytes, bytes]:
    at = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    path = rest[at:]
    return rest[:at], path if path.startswith(b"/") else b"/" + path
