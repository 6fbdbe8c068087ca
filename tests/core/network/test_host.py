"""Hosts and ports as clients write them: one canonical spelling, or a refusal with its reason."""

from __future__ import annotations

import ipaddress
import re
import socket

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mudroom.core.network.host import Authority, HostName, parse_authority, parse_host, parse_port
from tiers import each


@each(
    ("raw", "expected"),
    [
        (b"example.com", HostName("name", "example.com")),
        (b"EXAMPLE.Com", HostName("name", "example.com")),
        (b"example.com.", HostName("name", "example.com")),  # one dot at the end is the root
        (b"localhost", HostName("name", "localhost")),
        (b"_dmarc.example.com", HostName("name", "_dmarc.example.com")),
        (b"a_b.example", HostName("name", "a_b.example")),
        (b"r1---sn-4g5e6nze.example.com", HostName("name", "r1---sn-4g5e6nze.example.com")),
        (b"xn--e1awd7f.com", HostName("name", "xn--e1awd7f.com")),  # looks like epic.com and is not
        (b"1.2.3.4.example", HostName("name", "1.2.3.4.example")),
        (b"1e100.net", HostName("name", "1e100.net")),
        (b"0x7f.example", HostName("name", "0x7f.example")),
        (b"4chan.0xg", HostName("name", "4chan.0xg")),
        (b"a" * 63 + b".b", HostName("name", "a" * 63 + ".b")),
        (b".".join([b"a" * 63] * 3 + [b"b" * 61]), HostName("name", ".".join(["a" * 63] * 3 + ["b" * 61]))),
        (b".".join([b"a" * 63] * 3 + [b"b" * 61]) + b".", HostName("name", ".".join(["a" * 63] * 3 + ["b" * 61]))),
        (b"127.0.0.1", HostName("ipv4", "127.0.0.1")),
        (b"255.255.255.255", HostName("ipv4", "255.255.255.255")),
        (b"::", HostName("ipv6", "::")),
        (b"::1", HostName("ipv6", "::1")),
        (b"0:0:0:0:0:0:0:1", HostName("ipv6", "::1")),
        (b"2001:DB8:0:0:1:0:0:1", HostName("ipv6", "2001:db8::1:0:0:1")),
        (b"2001:db8:0:1:1:1:1:1", HostName("ipv6", "2001:db8:0:1:1:1:1:1")),  # RFC 5952: one zero is no ::
        (b"64:ff9b::127.0.0.1", HostName("ipv6", "64:ff9b::7f00:1")),
        (b"::127.0.0.1", HostName("ipv6", "::7f00:1")),
        (b"::ffff:127.0.0.1", HostName("ipv4", "127.0.0.1")),
        (b"::FFFF:7f00:1", HostName("ipv4", "127.0.0.1")),
        (b"0:0:0:0:0:ffff:1.2.3.4", HostName("ipv4", "1.2.3.4")),
    ],
)
def test_a_host(raw: bytes, expected: HostName) -> None:
    found = parse_host(raw)
    assert found == expected
    assert str(found) == expected.text


REFUSED = [
    (b"", "there is no host"),
    # what inet_aton(3) takes for an address
    (b"127.1", "do not end in a number"),
    (b"127.0.1", "do not end in a number"),
    (b"0", "do not end in a number"),
    (b"2130706433", "do not end in a number"),
    (b"0x7f000001", "do not end in a number"),
    (b"0x7f.1", "do not end in a number"),
    (b"0x7f.0x0.0x0.0x1", "do not end in a number"),
    (b"0X7F.0.0.0X1", "do not end in a number"),
    (b"0177.0.0.1", "do not end in a number"),
    (b"127.0.0.01", "do not end in a number"),
    (b"127.0.0.1.", "do not end in a number"),
    (b"256.1.1.1", "do not end in a number"),
    (b"1.2.3.4.5", "do not end in a number"),
    (b"example.1", "do not end in a number"),
    (b"example.0x", "do not end in a number"),
    (b"00.00.00.00", "do not end in a number"),
    # dots
    (b".", "a part of a name is empty"),
    (b"..", "a part of a name is empty"),
    (b"example.com..", "a part of a name is empty"),
    (b".example.com", "a part of a name is empty"),
    (b"a..b", "a part of a name is empty"),
    # bytes that resolvers cut at, or fold
    (b"127.0.0.1\0.allowed.com", "control character"),
    (b"evil.com\0.allowed.com", "control character"),
    (b"a\r\nHost: b", "IPv6"),
    (b"a\nb", "control character"),
    (b"a\x7fb", "control character"),
    (b"a\tb", "control character"),
    (b"a b", "' ' is not for names"),
    (b" a", "' ' is not for names"),
    ("\u2460\u2461\u2466.0.0.1".encode(), "not ASCII"),
    ("\uff11\uff12\uff17.0.0.1".encode(), "not ASCII"),
    ("\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3".encode(), "not ASCII"),
    ("\u0435\u0445ample.com".encode(), "not ASCII"),  # Cyrillic letters
    ("example\u3002com".encode(), "not ASCII"),  # ideographic full stop, which IDNA reads as a dot
    ("exa\u00admple.com".encode(), "not ASCII"),  # soft hyphen, which IDNA drops
    ("\u212aelvin.com".encode(), "not ASCII"),  # KELVIN SIGN, which lower() makes a k
    (b"\xff.com", "not ASCII"),
    # other grammars
    (b"user@example.com", "a user before"),
    (b"user:hunter2@example.com", "a user before"),
    (b"a%00b", "'%' is not for names"),
    (b"%31%32%37.0.0.1", "'%' is not for names"),
    (b"a/b", "'/' is not for names"),
    (b"a\\b", "is not for names"),
    (b"a?b", "'?' is not for names"),
    (b"a#b", "'#' is not for names"),
    (b"*.example.com", "'*' is not for names"),
    (b"-a.example", "neither begins nor ends with '-'"),
    (b"a-.example", "neither begins nor ends with '-'"),
    (b"-", "neither begins nor ends with '-'"),
    (b"a" * 64 + b".b", "63 characters"),
    (b".".join([b"a" * 63] * 4), "is too long"),
    (b"a." * 128, "is too long"),
    # IPv6
    (b"fe80::1%eth0", "zone"),
    (b"::1%0", "zone"),
    (b"[::1]", "no IPv6 address"),
    (b"[[::1]]", "no IPv6 address"),
    (b"[127.0.0.1]", "'[' is not for names"),
    (b":", "no IPv6 address"),
    (b":::", "no IPv6 address"),
    (b"::1::", "no IPv6 address"),
    (b"1:2:3:4:5:6:7", "no IPv6 address"),
    (b"1:2:3:4:5:6:7:8:9", "no IPv6 address"),
    (b"1:2:3:4::5:6:7:8", "no IPv6 address"),
    (b"::12345", "no IPv6 address"),
    (b"::g", "no IPv6 address"),
    (b"::ffff:127.1", "no IPv6 address"),
    (b"::ffff:0177.0.0.1", "no IPv6 address"),
    (b"1.2.3.4::", "no IPv6 address"),
    (b"::1.2.3.4:5", "no IPv6 address"),
    (b"::1/128", "no IPv6 address"),
    (b"::\xc2\xb9", "no IPv6 address"),  # superscript one, a digit to str.isdigit
    (b"::1.", "no IPv6 address"),
    (b"::1 ", "no IPv6 address"),
    (b"::1\0", "no IPv6 address"),
    (b"0x::1", "no IPv6 address"),
    (b"::+1", "no IPv6 address"),
    (b"::1_0", "no IPv6 address"),
    (b"example.com:443", "no IPv6 address"),
]


@each(("raw", "reason"), REFUSED)
def test_what_is_no_host(raw: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        parse_host(raw)
    assert str(caught.value).isprintable()
    assert "hunter2" not in str(caught.value)


@each(
    ("raw", "expected"),
    [
        (b"example.com:443", Authority(HostName("name", "example.com"), 443)),
        (b"Example.Com.:22", Authority(HostName("name", "example.com"), 22)),
        (b"example.com", Authority(HostName("name", "example.com"), 80)),
        (b"1.2.3.4:65535", Authority(HostName("ipv4", "1.2.3.4"), 65535)),
        (b"[::1]:1", Authority(HostName("ipv6", "::1"), 1)),
        (b"[::1]", Authority(HostName("ipv6", "::1"), 80)),
        (b"[::ffff:1.2.3.4]:80", Authority(HostName("ipv4", "1.2.3.4"), 80)),
    ],
)
def test_an_authority(raw: bytes, expected: Authority) -> None:
    found = parse_authority(raw, 80)
    assert found == expected
    assert parse_authority(str(found).encode()) == expected


@each(
    ("raw", "reason"),
    [
        (b"", "no host"),
        (b":80", "no host"),
        (b"example.com:", "no port"),
        (b"[::1]:", "no port"),
        (b"example.com:0", "no port"),
        (b"example.com:65536", "no port"),
        (b"example.com:99999999999", "no port"),
        (b"example.com:080", "no port"),
        (b"example.com:+80", "no port"),
        (b"example.com:8_0", "no port"),
        (b"example.com: 80", "no port"),
        (b"example.com:80 ", "no port"),
        (b"example.com:80\n", "no port"),
        (b"example.com:80/x", "no port"),
        ("example.com:\uff18\uff10".encode(), "no port"),
        (b"example.com:80:80", "brackets"),
        (b"::1", "brackets"),
        (b"::1:80", "brackets"),
        (b"[::1", "brackets"),
        (b"[::1]80", "brackets"),
        (b"[[::1]]:80", "brackets"),
        (b"[[example.com]]:80", "brackets"),
        (b"[example.com]:80", "only an IPv6 address"),
        (b"[127.0.0.1]:80", "only an IPv6 address"),
        (b"[::1%25eth0]:80", "zone"),
        (b"[]:80", "no host"),
        (b"user@example.com:80", "a user before"),
        (b"allowed.com:80@evil.com:80", "a user before"),
        (b"allowed.com@[::1]:80", "a user before"),
        (b"127.1:80", "do not end in a number"),
        (b"evil.com\0.allowed.com:443", "control character"),
    ],
)
def test_what_is_no_authority(raw: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        parse_authority(raw, 80)
    assert str(caught.value).isprintable()


def test_a_port_has_to_be_there_if_there_is_no_usual_one() -> None:
    with pytest.raises(ValueError, match="there is no port"):
        parse_authority(b"example.com")
    assert parse_port(b"443") == 443


# --- properties ---

PIECES = st.sampled_from(
    [
        b"a", b"xn--", b"0x7f", b"127", b"1", b"0177", b".", b"-", b"_", b":", b"::", b"ffff", b"\0", b"%", b"[",
        b"]", b"A",
    ]
)  # fmt: skip
RAW = st.one_of(
    st.binary(max_size=40),
    st.lists(PIECES, max_size=8).map(b"".join),
    st.ip_addresses().map(lambda address: str(address).encode()),
    st.lists(st.sampled_from([b"0", b"1", b"127", b"0x1", b"010", b"256", b""]), min_size=1, max_size=5).map(b".".join),
)


@given(RAW)
@example(b"1.2.3.4.")
@example(b"0X1")
def test_reading_is_idempotent_and_never_fails_otherwise(raw: bytes) -> None:
    try:
        host = parse_host(raw)
    except ValueError as error:
        assert str(error).isprintable()
        return
    again = parse_host(host.text.encode())
    assert again == host
    assert len(host.text) <= 253
    assert re.fullmatch(r"[a-z0-9._:-]+", host.text)


@given(RAW)
def test_what_is_accepted_as_a_name_is_an_address_to_nobody(raw: bytes) -> None:
    try:
        host = parse_host(raw)
    except ValueError:
        return
    if host.kind == "name":
        with pytest.raises(OSError):
            socket.inet_aton(host.text)
        with pytest.raises(ValueError):
            ipaddress.ip_address(host.text)
        with pytest.raises(socket.gaierror):  # the C library itself, which does not look anything up here
            socket.getaddrinfo(host.text.encode(), 1, flags=socket.AI_NUMERICHOST)


@given(RAW)
def test_addresses_are_those_that_the_library_reads(raw: bytes) -> None:
    """``ipaddress`` is the oracle: what it reads (strictly, without zones) we read as the same, and nothing else."""
    try:
        expected = ipaddress.ip_address(raw.decode("ascii"))
    except ValueError:
        expected = None
    try:
        host = parse_host(raw)
    except ValueError:
        host = None
    if expected is None or "%" in str(expected):
        assert host is None or host.kind == "name"
        return
    mapped = getattr(expected, "ipv4_mapped", None)
    assert host is not None
    assert ipaddress.ip_address(host.text) == (mapped or expected)
    if mapped is None:
        assert host.text == expected.compressed
