"""Ways round lists of hosts that others were caught by, through everything that decides: spelling, rules, addresses.

What stands for the resolver answers as the C library would: it cuts at a NUL, reads numbers as inet_aton(3) does, and
says what it is told for names. An attempt is held if nothing is dialled.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network.host import Authority, parse_authority
from mudroom.core.network.host_rules import Request, decide, parse_rule, vet
from tiers import each

OWN = (ipaddress.ip_address("203.1.1.1").packed,)
EVIL, GOOD = "45.45.45.45", "151.101.0.223"
WORLD = {"allowed.com": [GOOD], "www.allowed.com": [GOOD], "evil.com": [EVIL], "localhost": ["127.0.0.1", "::1"]}
CIRCLED = "".join(chr(0x24D0 + ord(letter) - ord("a")) for letter in "localhost")
LIST = ("allowed.com", "*.allowed.com")


class Try(NamedTuple):
    what: str
    target: bytes
    allow: tuple[str, ...] = LIST
    deny: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    """What the name resolves to; empty: what the world says."""


def dialled(attempt: Try) -> list[str]:
    """The addresses that would be connected to."""
    rules = [parse_rule(one, "allow") for one in attempt.allow] + [parse_rule(one, "deny") for one in attempt.deny]
    try:
        authority = parse_authority(attempt.target, 443)
    except ValueError:
        return []
    decision = decide(Request(authority.host.text, authority.port), rules)
    if decision.action != "allow":
        return []
    addresses = [ipaddress.ip_address(one).packed for one in attempt.answer] or resolved(authority)
    if vet(decision, addresses, OWN, rules=rules, port=authority.port) is not None:
        return []
    return [str(ipaddress.ip_address(one)) for one in addresses]


def resolved(authority: Authority) -> list[bytes]:
    name = authority.host.text.partition("\0")[0]
    if authority.host.kind != "name":
        return [ipaddress.ip_address(name).packed]
    try:
        return [socket.inet_aton(name)]
    except OSError:
        return [ipaddress.ip_address(one).packed for one in WORLD.get(name, [EVIL])]


HELD = [
    Try("no list at all", b"allowed.com:443", ()),
    Try("a list of something else", b"evil.com:443"),
    Try("a NUL before an allowed suffix", b"evil.com\0.allowed.com:443"),
    Try("a NUL and an address", b"127.0.0.1\0.allowed.com:443"),
    Try("an address instead of a name", EVIL.encode() + b":443"),
    Try("an address, and every name is allowed", EVIL.encode() + b":443", ("*", "**.com")),
    Try("an IPv6 address, and every name is allowed", b"[2a00::1]:443", ("*",)),
    Try("another port", b"allowed.com:8080"),
    Try("ssh, where the web is allowed", b"allowed.com:22"),
    Try("two dots at the end", b"evil.com..:443", ("*",)),
    Try("a dot at the end, against a deny", b"evil.com.:443", ("*",), ("evil.com",)),
    Try("capitals, against a deny", b"EVIL.com:443", ("*",), ("evil.com",)),
    Try("below a denied name", b"a.b.evil.com:443", ("*",), ("**.evil.com",)),
    Try("double brackets", b"[[evil.com]]:443", ("*",)),
    Try("brackets round a name", b"[evil.com]:443", ("*",)),
    Try("a suffix without its dot", b"notallowed.com:443"),
    Try("a suffix with a dash", b"www-allowed.com:443"),
    Try("an allowed name in front", b"allowed.com.evil.com:443"),
    Try("the parent of a wildcard", b"allowed.com:443", ("*.allowed.com",)),
    Try("a user that looks like the host", b"allowed.com@evil.com:443"),
    Try("a user and a port that look like the host", b"allowed.com:443@evil.com:443"),
    Try("a path in the host", b"evil.com/allowed.com:443"),
    Try("a backslash", b"evil.com\\.allowed.com:443"),
    Try("a fragment", b"evil.com#.allowed.com:443"),
    Try("a question mark", b"evil.com?.allowed.com:443"),
    Try("percent encoding", b"evil%2ecom:443", ("*",)),
    Try("percent-encoded NUL", b"evil.com%00.allowed.com:443"),
    Try("a line break", b"evil.com\r\n.allowed.com:443"),
    Try("a space", b"evil.com .allowed.com:443"),
    Try("a tab", b"evil.com\t.allowed.com:443"),
    Try("letters that look alike", "\u0430llowed.com:443".encode()),
    Try("letters in circles, which fold to localhost", CIRCLED.encode() + b":443", ("*",)),
    Try("digits in circles", "\u2460\u2461\u2466.0.0.1:443".encode(), ("*", "0.0.0.0/0")),
    Try("wide digits", "\uff11\uff12\uff17.0.0.1:443".encode(), ("*", "0.0.0.0/0")),
    Try("an ideographic full stop", "evil\u3002com:443".encode(), ("*",), ("evil.com",)),
    Try("xn-- of a look-alike", b"xn--llowed-2ve.com:443"),
    Try("127.1", b"127.1:443", ("*", "0.0.0.0/0")),
    Try("127.0.1", b"127.0.1:443", ("*", "0.0.0.0/0")),
    Try("octal", b"0177.0.0.1:443", ("*", "0.0.0.0/0")),
    Try("hexadecimal", b"0x7f.0.0.1:443", ("*", "0.0.0.0/0")),
    Try("one number", b"2130706433:443", ("*", "0.0.0.0/0")),
    Try("one hexadecimal number", b"0x7f000001:443", ("*", "0.0.0.0/0")),
    Try("zero", b"0:443", ("*", "0.0.0.0/0")),
    Try("leading zeros", b"127.000.000.001:443", ("*", "0.0.0.0/0")),

    Try("0.0.0.0", b"0.0.0.0:443", ("0.0.0.0/0",)),
    Try("loopback by number", b"127.0.0.1:443", ("0.0.0.0/0",)),
    Try("loopback, IPv6", b"[::1]:443", ("::/0",)),
    Try("an unspecified IPv6 address", b"[::]:443", ("::/0",)),
    Try("a zone", b"[fe80::1%25eth0]:443", ("::/0",)),
    Try("IPv4 in IPv6, mapped", b"[::ffff:127.0.0.1]:443", ("::/0", "0.0.0.0/0")),
    Try("mapped, in hexadecimal", b"[::ffff:7f00:1]:443", ("::/0", "0.0.0.0/0")),
    Try("mapped, against a deny", b"[::ffff:45.45.45.45]:443", ("0.0.0.0/0",), (EVIL,)),
    Try("compatible", b"[::127.0.0.1]:443", ("::/0",)),
    Try("translated", b"[::ffff:0:127.0.0.1]:443", ("::/0",)),
    Try("NAT64", b"[64:ff9b::127.0.0.1]:443", ("::/0",)),
    Try("NAT64 to metadata, although private", b"[64:ff9b::169.254.169.254]:443", ("64:ff9b::/96",)),
    Try("6to4", b"[2002:7f00:1::]:443", ("::/0",)),
    Try("Teredo", b"[2001:0:1:2:3:4:80ff:fffe]:443", ("::/0",)),
    Try("metadata by name", b"metadata.google.internal:80", ("*", "*.internal")),
    Try("metadata by number", b"169.254.169.254:80", ("0.0.0.0/0",)),
    Try("metadata by number, IPv6", b"[fd00:ec2::254]:80", ("::/0", "fd00::/8")),
    Try("metadata of Alibaba in an allowed network", b"100.100.100.200:80", ("100.64.0.0/10",)),
    Try("metadata by an allowed name", b"allowed.com:80", answer=("169.254.169.254",)),
    Try("loopback by an allowed name", b"allowed.com:80", answer=("127.0.0.1",)),
    Try("loopback by an allowed name, mapped", b"allowed.com:80", answer=("::ffff:127.0.0.1",)),
    Try("the local network by an allowed name", b"allowed.com:80", answer=("192.168.1.1",)),
    Try("this machine's own address by an allowed name", b"allowed.com:80", answer=("203.1.1.1",)),
    Try("one address in two", b"allowed.com:80", answer=(GOOD, "10.0.0.1")),
    Try("a carrier's network", b"allowed.com:80", answer=("100.64.1.1",)),
    Try("addresses that stand for names", b"allowed.com:80", answer=("198.18.0.7",)),
    Try("multicast", b"allowed.com:80", answer=("224.0.0.251",)),
    Try("broadcast", b"255.255.255.255:80", ("0.0.0.0/0",)),
    Try("localhost, and every name is allowed", b"localhost:80", ("*",)),
    Try("a denied address by an allowed name", b"allowed.com:443", deny=("151.101.0.0/16",)),
    Try("port 0", b"allowed.com:0"),
    Try("a port with a sign", b"allowed.com:+443"),
    Try("a port beyond the last", b"allowed.com:65979"),  # 443 + 65536
    Try("a wide port", "allowed.com:\uff14\uff14\uff13".encode()),
    Try("an empty host", b":443", ("*",)),
    Try("a name that is too long", b"a" * 250 + b".allowed.com:443"),
]  # fmt: skip

LET_THROUGH = [
    (Try("an allowed name", b"allowed.com:443"), [GOOD]),
    (Try("below one", b"www.allowed.com:80"), [GOOD]),
    (Try("with the root's dot", b"Allowed.COM.:443"), [GOOD]),
    (Try("an address that is listed", b"45.45.45.45:443", (EVIL,)), [EVIL]),
    (Try("a private one that is listed", b"10.0.0.7:5432", ("10.0.0.7:5432",)), ["10.0.0.7"]),
    (Try("a port that is listed", b"allowed.com:22", ("allowed.com:22",)), [GOOD]),
]


@each("attempt", HELD)
def test_a_way_round_is_closed(attempt: Try) -> None:
    assert dialled(attempt) == []


@each(("attempt", "addresses"), LET_THROUGH)
def test_what_is_meant_goes_through(attempt: Try, addresses: list[str]) -> None:
    assert dialled(attempt) == addresses


@given(
    st.one_of(
        st.binary(max_size=30),
        st.ip_addresses().map(lambda one: f"[{one}]" if one.version == 6 else str(one)).map(str.encode),
    )
)
def test_whatever_is_asked_for_only_the_internet_is_dialled(target: bytes) -> None:
    """The widest rules there are that name nothing private, and any bytes for a target."""
    found = dialled(Try("", target + b":443", ("*", "0.0.0.0/0", "::/0"), answer=()))
    for one in found:
        assert ipaddress.ip_address(one).is_global
