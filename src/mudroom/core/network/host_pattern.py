"""Host patterns and the hosts that they match.

Rules: a pattern matches whole labels, never a part of a label. A wildcard matches names; an address or a network
matches clients that use addresses. Neither ever matches the other. ``localhost`` alone also stands for two addresses,
since it always means this machine's loopback (RFC 6761 6.3).
"""

from __future__ import annotations

from functools import lru_cache

from mudroom.core.network.address import Network, parse_network
from mudroom.core.network.host import HostName, parse_host
from mudroom.core.tree.path import show

LOCALHOST, LOCALHOST_ADDRESSES = "localhost", ("127.0.0.1", "::1")
"""This machine by name, and the addresses that the name stands for."""
PRESET = "@"
"""First character of a preset's word, which stands for several patterns (``core/network/preset.py``). No host begins
so."""
METADATA = {
    "metadata.google.internal": "the metadata service of Google's cloud",
    "metadata.goog": "the metadata service of Google's cloud",
    "instance-data": "the metadata service of AWS",
    "instance-data.ec2.internal": "the metadata service of AWS",
    "metadata.azure.internal": "the metadata service of Azure",
    "metadata.tencentyun.com": "the metadata service of Tencent's cloud",
    "metadata.platformequinix.com": "the metadata service of Equinix",
}
"""Names under which clouds serve metadata. The services' addresses are refused in any case."""


def parse_pattern(raw: bytes) -> tuple[str, Network | None]:
    """Return the canonical pattern, and for an address or a network the addresses that it covers. Raise ValueError with
    a printable reason."""
    if b"/" in raw:
        network = parse_network(raw)
        if network is None:
            raise ValueError(f"{show(raw)} is no network; one is written as 10.0.0.0/8, and a host without '/'")
        return str(network), network
    if raw == b"*":
        return "*", None
    stars = b"**." if raw.startswith(b"**.") else b"*." if raw.startswith(b"*.") else b""
    if b"*" in raw[len(stars) :]:
        raise ValueError(f"{show(raw)}: a '*' stands alone, or in front of a whole name: *.example.com, **.example.com")
    host = parse_host(raw[len(stars) :])
    if host.kind == "name":
        return stars.decode() + host.text, None
    if stars:
        raise ValueError(f"{show(raw)}: an address has no subdomains; write a network as 10.0.0.0/8")
    return host.text, network_of(host.text)


def matches(pattern: str, host: HostName) -> bool:
    """Return whether a canonical pattern matches this host. Raise ValueError for a preset's word: a deny that was not
    expanded would hold for no host."""
    if pattern.startswith(PRESET):
        raise ValueError(f"{pattern} stands for other rules")
    if host.kind != "name":
        if pattern == LOCALHOST:
            return host.text in LOCALHOST_ADDRESSES
        return host.text == pattern or ("/" in pattern and network_of(host.text).prefix in network_of(pattern))
    if pattern == "*":
        return True
    if pattern.startswith("**."):
        return host.text == pattern[3:] or host.text.endswith(pattern[2:])
    if pattern.startswith("*."):
        return host.text.endswith(pattern[1:])
    return host.text == pattern


def overlap(pattern: str, other: str) -> bool:
    """Return whether there may be a host that both canonical patterns match."""
    (_, network), (_, other_network) = parse_pattern(pattern.encode()), parse_pattern(other.encode())
    if network is not None and other_network is not None:
        return network.holds(other_network) or other_network.holds(network)
    if network is not None or other_network is not None:
        return False
    base, other_base = (one.lstrip("*").removeprefix(".") for one in (pattern, other))
    return (
        base == other_base
        or (pattern.startswith("*") and (pattern == "*" or other_base.endswith("." + base)))
        or (other.startswith("*") and (other == "*" or base.endswith("." + other_base)))
    )


def specificity(pattern: str) -> tuple[int, int]:
    """Return a sort key that is greater for patterns that match fewer hosts."""
    if "/" in pattern:
        return 3, network_of(pattern).length
    kind = 0 if pattern == "*" else 1 if pattern.startswith("**.") else 2 if pattern.startswith("*.") else 4
    return kind, len(pattern)


@lru_cache(maxsize=4096)
def network_of(pattern: str) -> Network:
    """Return a canonical address or network as a Network."""
    raw = pattern.encode()
    if "/" not in pattern:
        raw += b"/128" if ":" in pattern else b"/32"
    network = parse_network(raw)
    assert network is not None, pattern
    return network
