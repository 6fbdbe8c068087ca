"""Host names. Every host that a client sends is parsed here before any other code looks at it.

Rules: the input is bytes; the output is a canonical host, or a ValueError with the reason. A host is a name with ASCII
labels or a strict IP literal: getaddrinfo(3) would cut at a NUL and read ``127.1``, ``0x7f.1`` and ``2130706433`` as
127.0.0.1 (inet_aton(3)), and Python would fold a ``1`` in a circle to ``1``. So decisions, lookups and records use this
one spelling. International names are accepted as ``xn--`` labels only (RFC 5891), which makes a lookalike name visible.
"""

from __future__ import annotations

import re

from mudroom.core.network.address import IPV4_MAPPED, parse_ipv4, parse_ipv6, show_address
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.typing import Literal, NamedTuple

Kind = Literal["name", "ipv4", "ipv6"]

_LABEL = regex(rb"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = regex(rb"[0-9]+|0x[0-9a-f]*")
_PORT = regex(rb"[1-9][0-9]{0,4}")
_USER = "there is a user before the host"
"""Shown without the user, which may include a password."""
_LONGEST = 253
"""Bytes in a written name: 255 octets on the wire, less the first length and the root (RFC 1035 2.3.4)."""


class HostName(NamedTuple):
    kind: Kind
    text: str
    """Canonical: lower case, no trailing dot, addresses in the shortest form (RFC 5952), without brackets."""

    def __str__(self) -> str:
        return self.text


class Authority(NamedTuple):
    host: HostName
    port: int

    def __str__(self) -> str:
        shown = f"[{self.host.text}]" if self.host.kind == "ipv6" else self.host.text
        return f"{shown}:{self.port}"


def parse_host(raw: bytes) -> HostName:
    """Return a name, or an address without brackets. An IPv4-mapped IPv6 address (``::ffff:1.2.3.4``) becomes the IPv4
    address.

    Raise ValueError with a printable reason.
    """
    if not raw:
        raise ValueError("there is no host")
    if b"@" in raw:
        raise ValueError(_USER)
    if b":" in raw:
        return _address(raw)
    text = raw.lower()
    packed = parse_ipv4(text)
    if packed is not None:
        return HostName("ipv4", show_address(packed))
    return HostName("name", _name(text, raw))


def parse_authority(raw: bytes, default: int | None = None) -> Authority:
    """Return the host and port in ``host:port``, with an IPv6 address in brackets. ``default``: the port if none is
    written; None: a port is required.

    Raise ValueError with a printable reason.
    """
    if b"@" in raw:
        raise ValueError(_USER)
    if raw.startswith(b"["):
        inside, closed, rest = raw[1:].partition(b"]")
        if not closed or (rest and not rest.startswith(b":")):
            raise ValueError(f"{show(raw)}: the brackets do not match")
        host = parse_host(inside)
        if b":" not in inside:
            raise ValueError(f"{show(raw)}: only an IPv6 address stands in brackets")
        written, port = bool(rest), rest[1:]
    else:
        name, colon, port = raw.partition(b":")
        if b":" in port:
            raise ValueError(f"{show(raw)}: an IPv6 address with a port stands in brackets")
        host, written = parse_host(name), bool(colon)
    if not written and default is not None:
        return Authority(host, default)
    return Authority(host, parse_port(port))


def parse_port(raw: bytes) -> int:
    """Return a port from 1 to 65535 in plain digits. Raise ValueError for any other text."""
    if not _PORT.fullmatch(raw) or int(raw) > 65535:
        raise ValueError(f"{show(raw)} is no port (1 to 65535)" if raw else "there is no port")
    return int(raw)


def _address(raw: bytes) -> HostName:
    if b"%" in raw:
        raise ValueError(f"{show(raw)}: an address with a zone means a different host on each machine")
    packed = parse_ipv6(raw)
    if packed is None:
        raise ValueError(f"{show(raw)} is no IPv6 address")
    if packed.startswith(IPV4_MAPPED):
        return HostName("ipv4", show_address(packed[12:]))
    return HostName("ipv6", show_address(packed))


def _name(text: bytes, raw: bytes) -> str:
    shown = show(raw)
    if not raw.isascii():
        raise ValueError(f"{shown} is not ASCII; international names are written as xn--…")
    labels = text.removesuffix(b".").split(b".")
    if sum(map(len, labels)) + len(labels) - 1 > _LONGEST:
        raise ValueError(f"a name of {len(raw)} bytes is too long; {_LONGEST} are allowed")
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise ValueError(f"{shown}: {_label_error(label)}")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError(f"{shown} is neither a name nor an address in its usual form: names do not end in a number")
    return b".".join(labels).decode("ascii")


def _label_error(label: bytes) -> str:
    if not label:
        return "a part of a name is empty"
    if len(label) > 63:
        return "a part of a name has at most 63 characters"
    if label.startswith(b"-") or label.endswith(b"-"):
        return "a part of a name neither begins nor ends with '-'"
    odd = re.sub(rb"[a-z0-9_-]", b"", label)[:1].decode("ascii")
    return f"{odd!r} is not for names" if odd.isprintable() else "a control character is not for names"
