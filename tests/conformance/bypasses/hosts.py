"""Hosts: spelled in other ways, looking like others, resolving to what they should not."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from .attempt import World, attempt, register
from .words import (
    Refusal,
    accepted,
    ask,
    by_absolute,
    every_way,
    hello,
    record,
    request,
    rest,
    say,
    server_name,
    tunnel,
)

_GROUP = "addresses, spelled"


def _parts(world: World) -> list[int]:
    return list(socket.inet_aton(world.loopback))


def _dotted(world: World, form: str) -> bytes:
    return ".".join(form.format(part) for part in _parts(world)).encode()


def _number(world: World) -> int:
    return int.from_bytes(socket.inet_aton(world.loopback), "big")


def _circled(world: World, zero: str, one: str) -> bytes:
    return "".join(
        zero if digit == "0" else chr(ord(one) + int(digit) - 1) if digit.isdigit() else digit
        for digit in world.loopback
    ).encode()


def _low(world: World) -> str:
    return "{:02x}{:02x}:{:02x}{:02x}".format(*_parts(world))


_SPELLINGS: dict[str, tuple[str, Callable[[World], bytes]]] = {
    "dotted": ("127.99.0.1", lambda world: world.loopback.encode()),
    "octal": ("0177.0143.0.1", lambda world: _dotted(world, "0{:o}")),
    "hexadecimal": ("0x7f.0x63.0x0.0x1", lambda world: _dotted(world, "{:#x}")),
    "integer": ("2136145921", lambda world: b"%d" % _number(world)),
    "hex_integer": ("0x7f630001", lambda world: b"%#x" % _number(world)),
    "short": ("127.6488065", lambda world: b"127.%d" % (_number(world) & 0xFFFFFF)),
    "leading_zeros": ("127.099.000.001", lambda world: _dotted(world, "{:03d}")),
    "trailing_dot": ("127.99.0.1.", lambda world: world.loopback.encode() + b"."),
    "mapped": ("[::ffff:127.99.0.1]", lambda world: f"[::ffff:{world.loopback}]".encode()),
    "mapped_hex": ("[::ffff:7f63:1]", lambda world: f"[::ffff:{_low(world)}]".encode()),
    "compatible": ("[::127.99.0.1]", lambda world: f"[::{world.loopback}]".encode()),
    "translated": ("[::ffff:0:127.99.0.1]", lambda world: f"[::ffff:0:{world.loopback}]".encode()),
    "nat64": ("[64:ff9b::127.99.0.1]", lambda world: f"[64:ff9b::{world.loopback}]".encode()),
    "sixtofour": ("[2002:7f63:1::]", lambda world: f"[2002:{_low(world)}::]".encode()),
    "zone": ("[::1%25lo]", lambda world: b"[::1%25lo]"),
    "bare_zone": ("[fe80::1%lo]", lambda world: b"[fe80::1%lo]"),
    "double_brackets": ("[[::1]]: CVE-2022-29188", lambda world: b"[[::1]]"),
    "bracketed_ipv4": ("[127.99.0.1]", lambda world: f"[{world.loopback}]".encode()),
    "circled_digits": ("the digits in circles", lambda world: _circled(world, "⓪", "①")),
    "wide_digits": ("fullwidth digits", lambda world: _circled(world, "\uff10", "\uff11")),
    "escaped": ("%31%32%37…", lambda world: "".join(f"%{ord(one):02x}" for one in world.loopback).encode()),
    "nul_before": ("127.99.0.1 NUL .good.example", lambda world: f"{world.loopback}\0.{world.good}".encode()),
    "space_after": ("127.99.0.1 and a space", lambda world: world.loopback.encode() + b" "),
    "nobody": ("0.0.0.0", lambda world: b"0.0.0.0"),
    "nobody_short": ("0", lambda world: b"0"),
    "nobody_ipv6": ("[::]", lambda world: b"[::]"),
    "localhost": ("localhost", lambda world: b"localhost"),
    "localhost_dot": ("LocalHost.", lambda world: b"LocalHost."),
    "localhost_below": ("x.localhost", lambda world: b"x.localhost"),
    "on_the_internet": ("an address of the internet", lambda world: world.address.encode()),
    "on_the_internet_ipv6": ("one of IPv6", lambda world: f"[{world.address6}]".encode()),
    "private": ("one of a private network", lambda world: world.lan.encode()),
    "metadata": ("169.254.169.254", lambda world: b"169.254.169.254"),
    "good_address": (
        "the address of a host that is allowed by its name",
        lambda world: world.address.replace("45.33.", "45.32.").encode(),
    ),
}
_NOT_RESOLVED = (
    "translated", "nat64", "sixtofour", "bare_zone", "double_brackets", "escaped", "space_after", "compatible",
    "metadata", "zone", "nul_before", "circled_digits", "wide_digits", "trailing_dot", "bracketed_ipv4",
    "on_the_internet_ipv6", "localhost_below",
)  # fmt: skip
for _name, (_tries, _spell) in _SPELLINGS.items():
    register(
        f"literal_{_name}",
        _GROUP,
        _tries,
        lambda world, spell=_spell: every_way(world, spell(world)),  # type: ignore[misc]
        "inet_aton(3)" if "." in _tries else "",
        control=_name not in _NOT_RESOLVED,
    )

_NAMES: dict[str, tuple[str, Callable[[World], str], str]] = {
    "other": ("a host that no rule names", lambda world: world.bad, ""),
    "no_boundary": ("sexact.example for exact.example", lambda world: f"s{world.slot}exact.example", "tinyproxy#627"),
    "suffix": ("exact.example.bad.example", lambda world: f"exact.example.{world.bad}", ""),
    "below_exact": ("a.exact.example for exact.example", lambda world: f"s{world.slot}.exact.example", ""),
    "wild_no_boundary": ("evilwild.example for *.wild.example", lambda world: f"s{world.slot}wild.example", ""),
    "wild_suffix": ("a.wild.example.bad.example", lambda world: f"a.wild.example.{world.bad}", ""),
    "wild_inside": ("awild.example.b.example", lambda world: f"s{world.slot}.awild.example.b.example", ""),
    "denied_below": ("what a deny names, below what is allowed", lambda world: f"s{world.slot}.no.good.example", ""),
    "denied_case": ("the same in capitals, with a dot", lambda world: f"S{world.slot}.NO.Good.Example.", ""),
    "two_dots": ("good.example..", lambda world: f"s{world.slot}x.bad.example..", "CVE-2022-24825"),
    "dot_inside": ("bad..good.example", lambda world: f"s{world.slot}..good.example", "RFC 1035"),
    "leading_dot": (".good.example", lambda world: f".s{world.slot}.good.example", ""),
    "punycode": ("what looks like good.example", lambda world: f"s{world.slot}.xn--gd-tdab.example", ""),
    "cyrillic": ("with Cyrillic letters", lambda world: f"s{world.slot}.g\u043e\u043ed.example", "RFC 5891"),
    "full_stop": ("an ideographic full stop", lambda world: f"{world.bad}。good.example", "UTS 46"),
    "sharp_s": ("a letter that folds to two", lambda world: f"s{world.slot}.goßd.example", "UTS 46"),
    "kelvin": ("K (Kelvin), which lower case makes k", lambda world: f"s{world.slot}.\u212a.good.example", ""),
    "nul": ("bad NUL .good.example", lambda world: f"{world.bad}\0.{world.good}", "Claude Code 2.0.24, srt"),
    "newline": ("bad, a new line, good", lambda world: f"{world.bad}\n.{world.good}", ""),
    "percent": ("bad%00.good.example", lambda world: f"{world.bad}%00.{world.good}", ""),
    "hash": ("bad#.good.example", lambda world: f"{world.bad}#.{world.good}", ""),
    "question": ("bad?.good.example", lambda world: f"{world.bad}?.{world.good}", ""),
    "backslash": ("bad\\.good.example", lambda world: f"{world.bad}\\.{world.good}", ""),
    "slash": ("bad/.good.example", lambda world: f"{world.bad}/.{world.good}", ""),
    "user": ("good.example@bad", lambda world: f"{world.good}@{world.bad}", "RFC 3986 3.2.1"),
    "user_password": ("good.example:80@bad", lambda world: f"{world.good}:80@{world.bad}", "RFC 3986 3.2.1"),
    "comma": ("good.example,bad", lambda world: f"{world.good},{world.bad}", ""),
    "space": ("good.example bad", lambda world: f"{world.good} {world.bad}", ""),
    "long_label": ("a label of 64 characters", lambda world: f"s{world.slot}.{'a' * 64}.good.example", "RFC 1035"),
    "long_name": ("a name of 260 characters", lambda world: f"s{world.slot}{'.' + 'a' * 50}" * 5 + ".good.example", ""),
    "metadata_name": ("metadata.google.internal", lambda world: "metadata.google.internal", ""),
}  # fmt: skip
_STRANGE = {
    "dot_inside", "leading_dot", "full_stop", "sharp_s", "kelvin", "nul", "newline", "percent", "hash", "question",
    "backslash", "slash", "user", "user_password", "comma", "space", "long_label", "long_name", "metadata_name",
    "two_dots", "cyrillic",
}  # fmt: skip
for _name, (_tries, _make, _source) in _NAMES.items():
    register(
        f"name_{_name}",
        "names",
        _tries,
        lambda world, make=_make: every_way(world, make(world).encode()),  # type: ignore[misc]
        _source,
        control=_name not in _STRANGE,
    )

_KINDS = {
    "loop": "to the host's loopback",
    "lan": "to a private network",
    "meta": "to the metadata service of a cloud",
    "mapped": "to loopback, mapped into IPv6",
    "nat64": "to loopback, by NAT64",
    "sixtofour": "to loopback, by 6to4",
    "teredo": "to loopback, by Teredo",
    "zero": "to 0.0.0.0",
    "own": "to the host's own address of the internet",
    "mixed": "to an address of the internet and one of loopback",
    "synthetic": "to an address of the gate's own",
    "multicast": "to a multicast address",
    "linklocal": "to a link-local address",
    "home-meta": "to the metadata service, and its rule opens private networks",
}
for _name, _tries in _KINDS.items():
    register(
        f"resolves_{_name.replace('-', '_')}",
        "names that resolve elsewhere",
        f"an allowed name resolves {_tries}",
        lambda world, kind=_name: every_way(world, world.tricky(kind).encode()),  # type: ignore[misc]
        "rebinding" if _name == "mixed" else "",
        control=_name in ("loop", "lan", "own", "zero", "mixed"),
    )


@attempt("names that resolve elsewhere", "the second lookup has another answer than the first", "codex#18674")
def rebinding(world: World) -> None:
    host = world.tricky("rebind").encode()
    for _number in range(4):
        channel = tunnel(world, host + b":80")
        where = request(host, "first" if _number == 0 else world.mark)
        say(channel, where)


@attempt("names that resolve elsewhere", "the same on one connection, kept alive", "codex#18674", control=False)
def rebinding_kept(world: World) -> None:
    host = world.tricky("rebind").encode()
    first = b"GET http://%s/a HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host)
    second = b"GET http://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, world.mark.encode(), host)
    for _number in range(3):
        ask(world, first + second if _number else first)


def _follow(world: World, where: str) -> None:
    answer = ask(world, b"GET http://%s/redirect/%s HTTP/1.1\r\nHost: %s\r\n\r\n"
                 % (world.good.encode(), where.encode().hex().encode(), world.good.encode()))  # fmt: skip
    found = next((line for line in answer.split(b"\r\n") if line.lower().startswith(b"location: ")), b"")
    if not found:
        raise Refusal(errno.EACCES, "no redirect")
    host = found[10:].removeprefix(b"http://").partition(b"/")[0]
    by_absolute(world, host)


for _name, _where in (
    ("loopback", lambda world: f"http://{world.loopback}/{world.mark}"),
    ("metadata", lambda world: f"http://169.254.169.254/{world.mark}"),
    ("other", lambda world: f"http://{world.bad}/{world.mark}"),
):
    register(
        f"redirect_{_name}",
        "names that resolve elsewhere",
        f"a host that is allowed redirects: {_name}",
        lambda world, where=_where: _follow(world, where(world)),  # type: ignore[misc]
        control=False,
    )


@attempt("ports", "CONNECT to port 25 of a host that is allowed", "RFC 9110 9.3.6")
def port_smtp(world: World) -> None:
    say(tunnel(world, f"{world.good}:25".encode()), world.mark.encode())


@attempt("ports", "CONNECT to port 22 of a host that is allowed", "nono; gh-aw-firewall#207")
def port_ssh(world: World) -> None:
    say(tunnel(world, f"{world.good}:22".encode()), world.mark.encode())


for _name, _port in (
    ("zero", b"0"), ("large", b"65536"), ("wrapped", b"65616"), ("negative", b"-80"), ("plus", b"+80"),
    ("spaced", b" 80"), ("leading_zeros", b"0000080"), ("hex", b"0x50"), ("empty", b""), ("two", b"80:81"),
    ("unicode", "\uff18\uff10".encode()),
):  # fmt: skip
    register(
        f"port_{_name}",
        "ports",
        f"CONNECT to a port that is written {_port.decode()!r}",
        lambda world, port=_port: say(  # type: ignore[misc]
            tunnel(world, world.bad.encode() + b":" + port), request(world.bad.encode(), world.mark)
        ),
        control=_name in ("plus", "leading_zeros"),
    )


@attempt("ports", "the database's name on another port than its rule's")
def port_of_database(world: World) -> None:
    say(tunnel(world, b"s%d.db.example:6379" % world.slot), world.mark.encode())


@attempt("ports", "a host that is allowed for its private address, on another port")
def port_of_local(world: World) -> None:
    say(tunnel(world, b"s%d.local.example:%d" % (world.slot, world.ports["tcp"])), request(b"x", world.mark))


@attempt("ports", "the same by its address")
def address_of_local(world: World) -> None:
    say(tunnel(world, b"%s:8000" % world.loopback.encode()), request(b"x", world.mark))


@attempt("ports", "what is spoken on the allowed private port is for another host")
def other_host_at_local(world: World) -> None:
    say(tunnel(world, b"s%d.local.example:8000" % world.slot), request(world.bad.encode(), world.mark))


@attempt("ports", "TLS for another host on the port of the database", control=True)
def other_name_at_database(world: World) -> None:
    channel = tunnel(world, b"s%d.db.example:5432" % world.slot)
    say(channel, record(hello(world.mark, server_name(world.bad.encode()))))


@attempt("names", "a wildcard's own name, which it does not cover", control=False)
def name_apex(world: World) -> None:
    by_absolute(world, b"wild.example")


@attempt("names", "the server's name in TLS is one that a deny names", "domain fronting")
def name_denied_in_tls(world: World) -> None:
    with tunnel(world, f"{world.good}:443".encode()) as channel:
        channel.sendall(record(hello(world.mark, server_name(f"s{world.slot}.no.good.example".encode()))))
        accepted(rest(channel))
