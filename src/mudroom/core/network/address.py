"""IP addresses: strict parsing, one canonical text, and the addresses that are never dialled.

Rules: an address that is not plainly an internet address is refused. The table below gives the reason row by row, from
IANA's registries for special-purpose addresses (RFC 6890) and from the metadata services' addresses.
``ipaddress.is_global`` is not enough: it calls NAT64, 6to4 addresses and several metadata services global. If an IPv6
address embeds an IPv4 address, both are judged, and the stricter verdict holds. A rule with ``private`` opens some
refused addresses; no rule opens metadata services, link-local addresses or mudroom's own addresses.
"""

from __future__ import annotations

from collections.abc import Collection

from mudroom.core.text.regex import regex
from mudroom.typing import NamedTuple

IPV4_MAPPED = bytes(10) + b"\xff\xff"
"""::ffff:0:0/96, RFC 4291 2.5.5.2."""
SYNTHETIC_IPV4 = (b"\xc6\x12\x00\x00", 15)
"""198.18.0.0/15 (RFC 2544, benchmarks): unassigned on the internet, so the gate's own DNS server answers from it."""
SYNTHETIC_IPV6 = (b"\xfdmudroom" + bytes(8), 64)
"""fd6d:7564:726f:6f6d::/64, mudroom's own unique local prefix (RFC 4193)."""

_OCTET = regex(rb"0|[1-9][0-9]{0,2}")
_GROUP = regex(rb"[0-9a-fA-F]{1,4}")


class Network(NamedTuple):
    prefix: bytes
    """4 or 16 bytes; the bits after ``length`` are zero."""
    length: int
    """Bits."""

    def __contains__(self, packed: object) -> bool:
        if not isinstance(packed, bytes) or len(packed) != len(self.prefix):
            return False
        unused = len(packed) * 8 - self.length
        return int.from_bytes(packed, "big") >> unused == int.from_bytes(self.prefix, "big") >> unused

    def holds(self, other: Network) -> bool:
        return other.length >= self.length and other.prefix in self

    def __str__(self) -> str:
        return f"{show_address(self.prefix)}/{self.length}"


# --- reading and writing ---


def parse_ipv4(raw: bytes) -> bytes | None:
    """Return the address written as four decimal numbers without leading zeros, or None for any other text."""
    parts = raw.split(b".")
    if len(parts) != 4 or not all(_OCTET.fullmatch(part) and int(part) < 256 for part in parts):
        return None
    return bytes(int(part) for part in parts)


def parse_ipv6(raw: bytes) -> bytes | None:
    """Return the address in a form that RFC 4291 2.2 defines, without zone, prefix or brackets, or None for any other
    text."""
    head, gap, tail = raw.partition(b"::")
    if b"::" in tail or tail.startswith(b":"):
        return None
    front = _groups(head, last=not gap)
    back = _groups(tail, last=True)
    if front is None or back is None:
        return None
    missing = 16 - len(front) - len(back)
    if missing < 2 if gap else missing:
        return None
    return front + bytes(missing) + back


def _groups(raw: bytes, *, last: bool) -> bytes | None:
    """Return two bytes for each group; an address's last group (``last``) may be an IPv4 address."""
    if not raw:
        return b""
    parts = raw.split(b":")
    tail = parse_ipv4(parts[-1]) if last and b"." in parts[-1] else None
    if tail is not None:
        parts.pop()
    if not all(_GROUP.fullmatch(part) for part in parts):
        return None
    return b"".join(int(part, 16).to_bytes(2, "big") for part in parts) + (tail or b"")


def show_address(packed: bytes) -> str:
    """Return 4 bytes in dotted form, and 16 bytes as RFC 5952 says: lower case, the longest run with at least two zero
    groups as ``::``."""
    if len(packed) == 4:
        return ".".join(map(str, packed))
    groups = [f"{int.from_bytes(packed[i : i + 2], 'big'):x}" for i in range(0, 16, 2)]
    start, length = 0, 1
    for i in range(8):
        run = 0
        while i + run < 8 and groups[i + run] == "0":
            run += 1
        if run > length:
            start, length = i, run
    if length == 1:
        return ":".join(groups)
    return ":".join(groups[:start]) + "::" + ":".join(groups[start + length :])


def parse_network(raw: bytes) -> Network | None:
    """Return the network that ``10.0.0.0/8`` or ``fd00::/8`` denotes, or None if the text is not a network. Raise
    ValueError if host bits are set."""
    text, slash, bits = raw.partition(b"/")
    packed = parse_ipv4(text) or parse_ipv6(text)
    if not slash or packed is None or not _OCTET.fullmatch(bits) or int(bits) > len(packed) * 8:
        return None
    length = int(bits)
    unused = len(packed) * 8 - length
    prefix = (int.from_bytes(packed, "big") >> unused << unused).to_bytes(len(packed), "big")
    network = Network(prefix, length)
    if prefix != packed:
        raise ValueError(f"{raw.decode()} is an address in a network; the network is {network}")
    return network


# --- refused addresses ---


class Range(NamedTuple):
    network: Network
    reason: str
    openable: bool
    """Whether a rule with ``private`` opens it."""
    embedded: int = -1
    """Offset of an embedded IPv4 address in bytes; -1: there is none."""
    inverted: bool = False
    """Whether the embedded address has all its bits inverted."""


def _range(text: str, reason: str, openable: bool = False, embedded: int = -1, inverted: bool = False) -> Range:
    network = parse_network(text.encode())
    assert network is not None, text
    return Range(network, reason, openable, embedded, inverted)


_METADATA = "the metadata service of a cloud"
_LINK_LOCAL = "a link-local address"
RANGES = (
    _range("0.0.0.0/8", "'this network', which the kernel takes for this machine"),  # RFC 1122 3.2.1.3
    _range("10.0.0.0/8", "a private address", True),  # RFC 1918
    _range("100.100.100.200/32", _METADATA),  # Alibaba
    _range("100.64.0.0/10", "an address of a carrier or a private overlay network", True),  # RFC 6598
    _range("127.0.0.0/8", "an address of this machine", True),  # RFC 1122
    _range("169.254.169.254/32", _METADATA),  # AWS, Google, Azure, and most others
    _range("169.254.170.2/32", _METADATA),  # AWS, credentials of a container's task
    _range("169.254.0.0/16", _LINK_LOCAL),  # RFC 3927
    _range("168.63.129.16/32", _METADATA),  # Azure's host
    _range("172.16.0.0/12", "a private address", True),  # RFC 1918
    _range("192.0.0.192/32", _METADATA),  # Oracle
    _range("192.0.0.0/24", "an address for protocols"),  # RFC 6890
    _range("192.0.2.0/24", "an address for documentation, not a public address", True),  # RFC 5737
    _range("192.88.99.0/24", "an address of 6to4 relays"),  # RFC 7526
    _range("192.168.0.0/16", "a private address", True),  # RFC 1918
    _range("198.18.0.0/15", "an address that stands for a name in a sandbox"),
    _range("198.51.100.0/24", "an address for documentation, not a public address", True),
    _range("203.0.113.0/24", "an address for documentation, not a public address", True),
    _range("224.0.0.0/4", "a multicast address"),  # RFC 5771
    _range("240.0.0.0/4", "a reserved address"),  # RFC 1112
    _range("::/128", "no address"),
    _range("::1/128", "an address of this machine", True),
    _range("::/96", "an IPv4 address inside of an IPv6 address", embedded=12),  # RFC 4291, deprecated
    _range("::ffff:0:0/96", "an IPv4 address inside of an IPv6 address", embedded=12),  # RFC 4291
    _range("::ffff:0:0:0/96", "an IPv4 address inside of an IPv6 address", embedded=12),  # RFC 2765, translated
    _range("64:ff9b::/96", "an address of NAT64", True, embedded=12),  # RFC 6052
    _range("64:ff9b:1::/48", "an address of a private NAT64"),  # RFC 8215
    _range("2001::/32", "an address of Teredo", embedded=12, inverted=True),  # RFC 4380
    _range("2001:db8::/32", "an address for documentation, not a public address", True),  # RFC 3849
    _range("2001::/23", "an address for protocols"),  # RFC 2928
    _range("2002::/16", "an address of 6to4", embedded=2),  # RFC 3056
    _range("3fff::/20", "an address for documentation, not a public address", True),  # RFC 9637
    _range("fd6d:7564:726f:6f6d::/64", "an address that stands for a name in a sandbox"),
    _range("fd00:ec2::254/128", _METADATA),  # AWS
    _range("fd00:ec2::23/128", _METADATA),  # AWS, credentials of pods
    _range("fd20:ce::254/128", _METADATA),  # Google
    _range("fd00:42::42/128", _METADATA),  # Scaleway
    _range("fc00::/7", "a private address", True),  # RFC 4193
    _range("fe80::/10", _LINK_LOCAL),  # RFC 4291
    _range("fec0::/10", "a site-local address"),  # RFC 3879
    _range("ff00::/8", "a multicast address"),  # RFC 4291
)
"""The first row that contains an address counts. An address in no row is an internet address if it is IPv4 or in
2000::/3."""

_UNICAST = Network(b"\x20" + bytes(15), 3)
"""2000::/3: all IPv6 unicast space that IANA has allocated."""
_INTERFACE = "an address of this machine"


def range_of(packed: bytes) -> Range | None:
    """Return the first table row that contains an address."""
    return next((row for row in RANGES if packed in row.network), None)


def refused(packed: bytes, own: Collection[bytes] = (), *, private: bool = False) -> str | None:
    """Return why an address is not dialled, or None if it may be. ``packed``: 4 or 16 bytes; otherwise raise
    ValueError.

    ``own``: the addresses of this machine's interfaces. ``private``: the rule opens the addresses that can be opened.
    """
    if len(packed) not in (4, 16):
        raise ValueError(f"an address has 4 or 16 bytes, not {len(packed)}")
    row = range_of(packed)
    if row is not None and row.embedded >= 0:
        # both addresses must pass: a translator or tunnel delivers the packets to the embedded one
        inner = packed[row.embedded : row.embedded + 4]
        inside = refused(bytes(255 - byte for byte in inner) if row.inverted else inner, own, private=private)
        if inside is not None:
            return f"{row.reason}: {inside}"
    if row is not None:
        return None if private and row.openable else row.reason
    if len(packed) == 16 and packed not in _UNICAST:
        return "not an address of the internet"
    return _INTERFACE if packed in own and not private else None


def openable(network: Network) -> bool:
    """Return whether ``private`` opens all addresses in a network, so that a rule that names the network implies it."""
    row = next((row for row in RANGES if row.network.holds(network)), None)
    return row is not None and row.openable


def unreachable(network: Network) -> str | None:
    """Return why no rule can open any address in a network, or None if a rule can open some."""
    row = next((row for row in RANGES if row.network.holds(network)), None)
    return row.reason if row is not None and not row.openable else None
