"""Heads and bodies that two servers understand in two ways: request smuggling, and games with the Host header."""

from __future__ import annotations

import errno

from .attempt import World, attempt, register
from .words import Refusal, ask, rest, say, tunnel

_GROUP = "framing"


def _post(world: World, head: bytes, body: bytes) -> None:
    """In a tunnel to a host that is allowed."""
    say(tunnel(world, f"{world.good}:80".encode()), head + b"\r\n" + body)


def _head(world: World, *lines: bytes) -> bytes:
    """The mark is in its path: a head that can be read in two ways does not arrive at all."""
    return b"".join(
        line + b"\r\n" for line in (b"POST /%s HTTP/1.1" % world.mark.encode(), b"Host: " + world.good.encode(), *lines)
    )


_AMBIGUOUS: dict[str, tuple[str, tuple[bytes, ...], str]] = {
    "cl_te": ("a length, and chunked", (b"Content-Length: 5", b"Transfer-Encoding: chunked"), "RFC 9112 6.3"),
    "te_cl": ("chunked, and a length", (b"Transfer-Encoding: chunked", b"Content-Length: 5"), "RFC 9112 6.3"),
    "te_te": ("chunked twice", (b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), "RFC 9112 6.1"),
    "te_identity": ("chunked, identity", (b"Transfer-Encoding: chunked, identity",), "RFC 9112 6.1"),
    "te_unknown": ("xchunked", (b"Transfer-Encoding: xchunked",), "RFC 9112 6.1"),
    "te_quoted": ('"chunked"', (b'Transfer-Encoding: "chunked"',), "RFC 9112 6.1"),
    "te_tab": ("chunked behind a vertical tab", (b"Transfer-Encoding:\x0bchunked",), "RFC 9112 6.1"),
    "te_space": ("a space in front of the colon", (b"Transfer-Encoding : chunked",), "RFC 9112 5.1"),
    "te_folded": ("chunked on a folded line", (b"Transfer-Encoding:\r\n chunked",), "RFC 9112 5.2"),
    "te_nul": ("chunked and a NUL", (b"Transfer-Encoding: chunked\0",), "RFC 9110 5.5"),
    "te_high": ("chunked and a byte above ASCII", (b"Transfer-Encoding: chunked\xa0",), ""),
    "te_nul_name": ("a NUL in the name", (b"Content-Length: 0", b"Transfer-Encoding\x00: chunked"), ""),
    "two_lengths": ("two lengths", (b"Content-Length: 5", b"Content-Length: 6"), "RFC 9112 6.3"),
    "length_list": ("a list of lengths", (b"Content-Length: 5, 6",), "RFC 9112 6.3"),
    "length_plus": ("+5", (b"Content-Length: +5",), "RFC 9110 8.6"),
    "length_minus": ("-5", (b"Content-Length: -5",), "RFC 9110 8.6"),
    "length_hex": ("0x5", (b"Content-Length: 0x5",), "RFC 9110 8.6"),
    "length_underscore": ("1_0, which Python reads as 10", (b"Content-Length: 1_0",), ""),
    "length_unicode": ("digits that are none of ASCII", (b"Content-Length: " + "\uff15".encode(),), ""),
    "length_huge": ("more than 64 bits", (b"Content-Length: 18446744073709551621",), ""),
    "two_hosts": ("two hosts", (b"Host: s0.bad.example",), "RFC 9112 3.2"),
    "host_folded": ("a host on a folded line", (b"X: y", b" Host: s0.bad.example"), "RFC 9112 5.2"),
    "host_spaced": ("a host with a space in front of the colon", (b"Host : s0.bad.example",), "RFC 9112 5.1"),
    "bare_lf": ("a line that ends with a new line alone", (b"X: y\nHost: s0.bad.example",), "RFC 9112 2.2"),
    "bare_cr": ("a line with a carriage return in it", (b"X: y\rHost: s0.bad.example",), "RFC 9112 2.2"),
    "nul_in_value": ("a header with a NUL", (b"X: y\0z",), "RFC 9110 5.5"),
    "no_colon": ("a line without a colon", (b"Host s0.bad.example",), ""),
    "no_name": ("a line without a name", (b": s0.bad.example",), ""),
}  # fmt: skip
for _name, (_tries, _lines, _source) in _AMBIGUOUS.items():
    register(
        f"framing_{_name}",
        _GROUP,
        _tries,
        lambda world, lines=_lines: _post(world, _head(world, *lines), b"0\r\n\r\n"),  # type: ignore[misc]
        _source,
    )

_LINES: dict[str, tuple[str, bytes, str]] = {
    "version_2": ("HTTP/2.0 in a line", b"GET /%s HTTP/2.0", "RFC 9112 2.3"),
    "version_12": ("HTTP/1.2", b"GET /%s HTTP/1.2", "RFC 9112 2.3"),
    "version_lower": ("http/1.1", b"GET /%s http/1.1", "RFC 9112 2.3"),
    "version_none": ("HTTP/0.9", b"GET /%s", "RFC 1945"),
    "tab": ("tabs in the place of spaces", b"GET\t/%s\tHTTP/1.1", "RFC 9112 3"),
    "spaces": ("two spaces", b"GET  /%s HTTP/1.1", "RFC 9112 3"),
    "target_space": ("a space in the target", b"GET / /%s HTTP/1.1", "RFC 9112 3.2"),
    "target_cr": ("a carriage return in the target", b"GET /\r%s HTTP/1.1", "RFC 9112 2.2"),
    "target_nul": ("a NUL in the target", b"GET /\0%s HTTP/1.1", ""),
    "target_bytes": ("bytes above ASCII in the target", b"GET /\xff%s HTTP/1.1", ""),
    "target_none": ("a target that is no path", b"GET %s HTTP/1.1", "RFC 9112 3.2"),
    "target_fragment": ("a fragment in the target", b"GET /a#%s HTTP/1.1", "RFC 9112 3.2"),
    "no_method": ("no method", b" /%s HTTP/1.1", ""),
}
for _name, (_tries, _line, _source) in _LINES.items():
    register(
        f"line_{_name}",
        _GROUP,
        _tries,
        lambda world, line=_line: _post(  # type: ignore[misc]
            world, line % world.mark.encode() + b"\r\nHost: " + world.good.encode() + b"\r\n", b""
        ),
        _source,
    )

_HOSTS: dict[str, tuple[str, str]] = {
    "empty": ("an empty host", ""),
    "user": ("a host with a user", "good@{good}"),
    "user_bad": ("a user that looks like a host", "{good}@{bad}"),
    "list": ("two in one line", "{good}, {bad}"),
    "space": ("two with a space", "{good} {bad}"),
    "port": ("another port", "{good}:8080"),
    "two_ports": ("two ports", "{good}:80:80"),
    "port_name": ("a port that is none", "{good}:http"),
    "url": ("a URL", "http://{good}/"),
    "path": ("a path", "{good}/{bad}"),
    "brackets": ("a name in brackets", "[{good}]"),
    "underscore_dot": ("dots at the end", "{good}..."),
    "other": ("another host", "{bad}"),
    "denied": ("one that a deny names", "s0.no.good.example"),
}
for _name, (_tries, _form) in _HOSTS.items():
    register(
        f"host_{_name}",
        "the Host header",
        _tries,
        lambda world, form=_form: say(  # type: ignore[misc]
            tunnel(world, f"{world.good}:80".encode()),
            f"GET /{world.mark} HTTP/1.1\r\nHost: {form.format(good=world.good, bad=world.bad)}\r\n\r\n".encode(),
        ),
        "RFC 9112 3.2",
    )


@attempt("the Host header", "no host at all", "RFC 9112 3.2")
def host_none(world: World) -> None:
    say(tunnel(world, f"{world.good}:80".encode()), f"GET /{world.mark} HTTP/1.1\r\n\r\n".encode())


@attempt("the Host header", "Connection names Host, so that it is left out", "hop-by-hop abuse", control=False)
def host_dropped(world: World) -> None:
    bad = world.bad.encode()
    ask(world, b"GET http://%s/%s HTTP/1.1\r\nConnection: Host\r\nHost: %s\r\n\r\n"
        % (bad, world.mark.encode(), world.good.encode()))  # fmt: skip


def _smuggled(world: World) -> bytes:
    return f"GET /{world.inner} HTTP/1.1\r\nHost: {world.bad}\r\n\r\n".encode()


def _chunked(world: World, body: bytes) -> None:
    head = b"POST /body HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n" % world.good.encode()
    _post(world, head, body)


_BODIES: dict[str, tuple[str, bytes]] = {
    "extension": ("a chunk's extension ends with a new line alone", b"5;a\nhello\r\n0\r\n\r\n"),
    "extension_long": ("an extension without end", b"5;" + b"a" * 70_000 + b"\r\nhello\r\n0\r\n\r\n"),
    "size_plus": ("a size with a sign", b"+5\r\nhello\r\n0\r\n\r\n"),
    "size_hex": ("a size with 0x", b"0x5\r\nhello\r\n0\r\n\r\n"),
    "size_underscore": ("a size with an underscore", b"0_5\r\nhello\r\n0\r\n\r\n"),
    "size_huge": ("a size of more than 64 bits", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
    "size_spaced": ("spaces around a size", b" 5 \r\nhello\r\n0\r\n\r\n"),
    "size_empty": ("no size", b"\r\nhello\r\n0\r\n\r\n"),
    "longer": ("a chunk longer than its size", b"5\r\nhelloXX\r\n0\r\n\r\n"),
    "bare_lf": ("sizes that end with a new line alone", b"5\nhello\n0\n\n"),
    "bare_cr": ("sizes that end with a carriage return alone", b"5\rhello\r0\r\r"),
    "early_end": ("an end with more zeros", b"000\r\n\r\n"),
}
for _name, (_tries, _body) in _BODIES.items():
    register(
        f"chunk_{_name}",
        "chunks",
        f"{_tries}; a request for another host follows",
        lambda world, body=_body: _chunked(world, body + _smuggled(world)),  # type: ignore[misc]
        "RFC 9112 7.1",
        control=_name == "early_end",
    )


@attempt("chunks", "a request in the trailers", "RFC 9112 7.1.2", control=False)
def chunk_trailers(world: World) -> None:
    _chunked(world, b"5\r\nhello\r\n0\r\nHost: %s\r\n\r\n" % world.bad.encode() + _smuggled(world))


@attempt("chunks", "a request in a body that is shorter than its length says", control=False)
def length_too_long(world: World) -> None:
    head = b"POST /body HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n" % world.good.encode()
    with tunnel(world, f"{world.good}:80".encode()) as channel:
        channel.sendall(head + b"\r\n" + _smuggled(world))
        if not rest(channel):
            raise Refusal(errno.EACCES, "closed")


@attempt("chunks", "a request behind a body of a GET", "RFC 9110 9.3.1")
def body_of_get(world: World) -> None:
    head = b"GET /body HTTP/1.1\r\nHost: %s\r\nContent-Length: 5\r\n" % world.good.encode()
    _post(world, head, b"hello" + _smuggled(world))


@attempt("chunks", "a request before the server has said 100", "RFC 9110 10.1.1")
def expect_continue(world: World) -> None:
    head = b"POST /body HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 5\r\n" % world.good.encode()
    _post(world, head, b"hello" + _smuggled(world))


@attempt("chunks", "chunked in HTTP/1.0", "RFC 9112 6.1")
def chunked_old(world: World) -> None:
    head = b"POST /%s HTTP/1.0\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n"
    _post(world, head % (world.mark.encode(), world.good.encode()), b"0\r\n\r\n")
