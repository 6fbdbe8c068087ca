"""Which addresses are never dialled, which only if a rule says so, and which are of the internet."""

from __future__ import annotations

import ipaddress
from typing import Literal

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mudroom.core.network.address import (
    RANGES,
    SYNTHETIC_IPV4,
    SYNTHETIC_IPV6,
    Network,
    openable,
    parse_network,
    range_of,
    refused,
    show_address,
    unreachable,
)
from tiers import each

Verdict = Literal["internet", "private", "never"]


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def verdict(address: bytes, own: tuple[bytes, ...] = ()) -> Verdict:
    if refused(address, own) is None:
        return "internet"
    return "private" if refused(address, own, private=True) is None else "never"


@each(
    ("text", "expected", "reason"),
    [
        ("1.1.1.1", "internet", ""),
        ("8.8.8.8", "internet", ""),
        ("9.255.255.255", "internet", ""),
        ("11.0.0.0", "internet", ""),
        ("100.63.255.255", "internet", ""),
        ("100.128.0.0", "internet", ""),
        ("172.15.255.255", "internet", ""),
        ("172.32.0.0", "internet", ""),
        ("192.167.255.255", "internet", ""),
        ("198.17.255.255", "internet", ""),
        ("198.20.0.0", "internet", ""),
        ("223.255.255.255", "internet", ""),
        ("2606:4700::1111", "internet", ""),
        ("2a00::1", "internet", ""),
        ("0.0.0.0", "never", "this machine"),
        ("0.1.2.3", "never", "this machine"),
        ("10.0.0.1", "private", "private"),
        ("127.0.0.1", "private", "this machine"),
        ("127.255.255.254", "private", "this machine"),
        ("172.16.0.1", "private", "private"),
        ("172.31.255.255", "private", "private"),
        ("192.168.1.1", "private", "private"),
        ("100.64.0.1", "private", "carrier"),
        ("192.0.2.1", "private", "documentation"),
        ("100.100.100.200", "never", "metadata"),
        ("169.254.169.254", "never", "metadata"),
        ("169.254.170.2", "never", "metadata"),
        ("168.63.129.16", "never", "metadata"),
        ("192.0.0.192", "never", "metadata"),
        ("169.254.1.1", "never", "link-local"),
        ("192.0.0.9", "never", "protocols"),
        ("192.88.99.1", "never", "6to4"),
        ("198.18.0.1", "never", "sandbox"),
        ("198.19.255.255", "never", "sandbox"),
        ("224.0.0.1", "never", "multicast"),
        ("239.255.255.255", "never", "multicast"),
        ("240.0.0.1", "never", "reserved"),
        ("255.255.255.255", "never", "reserved"),
        ("::", "never", "no address"),
        ("::1", "private", "this machine"),
        ("fc00::1", "private", "private"),
        ("fd12:3456::1", "private", "private"),
        ("2001:db8::1", "private", "documentation"),
        ("3fff::1", "private", "documentation"),
        ("fd00:ec2::254", "never", "metadata"),
        ("fd00:ec2::23", "never", "metadata"),
        ("fd20:ce::254", "never", "metadata"),
        ("fd00:42::42", "never", "metadata"),
        ("fd6d:7564:726f:6f6d::5", "never", "sandbox"),
        ("fe80::1", "never", "link-local"),
        ("febf::1", "never", "link-local"),
        ("fec0::1", "never", "site-local"),
        ("ff02::1", "never", "multicast"),
        ("100::1", "never", "not an address of the internet"),
        ("4000::1", "never", "not an address of the internet"),
        ("5f00::1", "never", "not an address of the internet"),
        ("2001:2::1", "never", "protocols"),
        ("2001:20::1", "never", "protocols"),
        # an IPv4 address inside of an IPv6 one: both are judged
        ("::ffff:127.0.0.1", "never", "IPv4 address inside of an IPv6 address: an address of this machine"),
        ("::ffff:169.254.169.254", "never", "metadata"),
        ("::ffff:8.8.8.8", "never", "IPv4 address inside of an IPv6 address"),
        ("::127.0.0.1", "never", "this machine"),
        ("::8.8.8.8", "never", "IPv4 address inside of an IPv6 address"),
        ("::ffff:0:127.0.0.1", "never", "this machine"),
        ("::ffff:0:8.8.8.8", "never", "IPv4 address inside of an IPv6 address"),
        ("64:ff9b::127.0.0.1", "private", "NAT64: an address of this machine"),
        ("64:ff9b::10.0.0.1", "private", "NAT64: a private address"),
        ("64:ff9b::8.8.8.8", "private", "NAT64"),
        ("64:ff9b::169.254.169.254", "never", "NAT64: the metadata service"),
        ("64:ff9b:1::8.8.8.8", "never", "NAT64"),
        ("2002:7f00:1::", "never", "6to4: an address of this machine"),
        ("2002:808:808::", "never", "6to4"),
        ("2002:a9fe:a9fe::1", "never", "6to4: the metadata service"),
        ("2001:0:808:808:0:0:80ff:fffe", "never", "Teredo: an address of this machine"),
        ("2001:0:808:808:0:0:5601:5601", "never", "Teredo: the metadata service"),
        ("2001::1", "never", "Teredo"),
    ],
)
def test_an_address(text: str, expected: Verdict, reason: str) -> None:
    found = packed(text)
    assert verdict(found) == expected
    assert reason in (refused(found) or "")
    assert (refused(found, private=True) is None) == (expected != "never")


def test_the_addresses_of_this_machine_are_like_private_ones() -> None:
    ours, other = packed("8.8.4.4"), packed("2606:4700::2")
    assert verdict(ours, (ours, other)) == verdict(other, (ours, other)) == "private"
    assert refused(ours, [ours]) == "an address of this machine"
    assert verdict(packed("8.8.4.5"), (ours, other)) == "internet"
    assert verdict(packed("::ffff:8.8.4.4"), (ours,)) == "never"


def test_what_has_no_length_of_an_address() -> None:
    for raw in (b"", b"1.1.1.1", bytes(5), bytes(17)):
        with pytest.raises(ValueError, match="4 or 16 bytes"):
            refused(raw)


def test_the_ranges_that_stand_for_names_are_in_the_table() -> None:
    for prefix, length in (SYNTHETIC_IPV4, SYNTHETIC_IPV6):
        row = range_of(prefix)
        assert row is not None
        assert (row.network, row.openable) == (Network(prefix, length), False)


def test_no_row_of_the_table_is_hidden_by_one_above_it() -> None:
    for number, row in enumerate(RANGES):
        hidden = [above for above in RANGES[:number] if above.network.holds(row.network)]
        assert hidden == [], row.network


@each(
    ("text", "opens", "never"),
    [
        ("10.0.0.0/8", True, False),
        ("10.1.0.0/16", True, False),
        ("127.0.0.1/32", True, False),
        ("100.64.0.0/10", True, False),
        ("fd00::/8", True, False),
        ("0.0.0.0/0", False, False),
        ("::/0", False, False),
        ("8.0.0.0/7", False, False),
        ("8.8.8.8/32", False, False),
        ("100.100.100.200/32", False, True),
        ("169.254.0.0/16", False, True),
        ("fe80::/64", False, True),
        ("198.18.0.0/15", False, True),
    ],
)
def test_a_network_as_a_whole(text: str, opens: bool, never: bool) -> None:
    network = parse_network(text.encode())
    assert network is not None
    assert str(network) == text
    assert openable(network) is opens
    assert (unreachable(network) is not None) is never


@each(
    "raw",
    [b"", b"/8", b"10.0.0.0", b"10.0.0.0/", b"10.0.0.0/33", b"::/129", b"10.0.0.0/-1", b"10.0.0.0/08", b"10/8",
     b"10.0.0.0/8/8", b"10.0.0.0/255.0.0.0", b"example.com/8", b"::/\xc2\xb9", b"fe80::%1/64"],
)  # fmt: skip
def test_what_is_no_network(raw: bytes) -> None:
    assert parse_network(raw) is None


def test_a_network_with_bits_of_hosts_is_corrected() -> None:
    with pytest.raises(ValueError, match=r"10\.1\.2\.3/8 is an address in a network; the network is 10\.0\.0\.0/8"):
        parse_network(b"10.1.2.3/8")


@given(st.ip_addresses())
@example(ipaddress.ip_address("192.0.0.9"))
@example(ipaddress.ip_address("64:ff9b::1"))
def test_what_is_let_through_is_global_to_others_too(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if refused(address.packed) is None:
        assert address.is_global
        assert not (address.is_private or address.is_loopback or address.is_link_local or address.is_multicast)
        assert not (address.is_reserved or address.is_unspecified)


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:{}", "::{}", "::ffff:0:{}", "64:ff9b::{}"]))
def test_nothing_gets_in_by_an_address_inside_of_another(address: ipaddress.IPv4Address, form: str) -> None:
    inner, outer = verdict(address.packed), verdict(packed(form.format(address)))
    order = ["internet", "private", "never"]
    assert order.index(outer) >= order.index(inner)
    assert outer != "internet"


@given(st.ip_addresses())
def test_addresses_are_written_as_everybody_does(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assume(getattr(address, "ipv4_mapped", None) is None)  # Python 3.13 writes those with dots
    assert show_address(address.packed) == ipaddress.ip_address(address.packed).compressed


@given(st.ip_addresses(), st.integers(0, 128))
def test_networks_hold_what_the_library_says(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, length: int
) -> None:
    length = min(length, address.max_prefixlen)
    expected = ipaddress.ip_network(f"{address}/{length}", strict=False)
    network = parse_network(f"{show_address(expected.network_address.packed)}/{length}".encode())
    assert network is not None
    assert address.packed in network
    assert expected.broadcast_address.packed in network
    assert network.prefix == expected.network_address.packed
    other = 20 - len(address.packed)
    assert bytes(other) not in network
