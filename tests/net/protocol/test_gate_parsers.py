"""Whatever a stranger sends, the parsers of the gate answer with a value or with their own exception, and soon."""

from __future__ import annotations

import ssl
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mudroom.core.network.host import parse_host
from mudroom.net.listeners import socks
from mudroom.net.listeners.accept import parse_connect
from mudroom.net.protocol import client_hello, dns, head, refusal
from mudroom.net.protocol.synthetic import MOST, Synthetic, is_synthetic
from mudroom.net.protocol.target import parse_target
from tiers import each

LINES = st.sampled_from([b"\r\n", b"\n", b"\r", b": ", b":", b" ", b"\t", b"\0", b",", b";", b"\x0b"])
WORDS = st.sampled_from(
    b"GET CONNECT POST / * http://a.example/ a.example:443 HTTP/1.1 HTTP/1.0 Host Content-Length Transfer-Encoding "
    b"chunked 5 Upgrade websocket Connection [::1]".split()
)
HEADS = st.lists(st.one_of(LINES, WORDS, st.binary(max_size=8)), max_size=40).map(b"".join)
GOOD = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"


# --- HTTP ---


@each(
    ("name", "value", "what"),
    [
        ("X-HTTP-Method-Override", "x", "method"),
        ("X-Verb", "x", "method"),
        ("X-Company-Does", "delete", "method"),
        ("X_Company_Does", ' "PATCH"', "method"),
        ("X-Original-URL", "x", "path"),
        ("X-Envoy-Original-Path", "x", "path"),
        ("X-Forwarded-Uri", "x", "path"),
        ("Destination", "x", "path"),
        ("X-Amz-Copy-Source", "/bucket/key", "path"),
        ("X-Company-Wants", "/admin", "path"),
        ("X-Company-Wants", "%2Fadmin", "path"),
        ("X-Company-Wants", "\\\\admin", "path"),
        ("SOAPAction", '"http://a.example/Delete"', "path"),
        ("If", "<http://a.example/x> (<urn:x>)", "path"),
        ("Accept", "/", ""),
        ("Referer", "https://a.example/admin", ""),
        ("Access-Control-Request-Method", "DELETE", ""),
        ("Sec-WebSocket-Key", "/dGhlIHNhbXBsZSBub25jZQ==", ""),
        ("Authorization", "/AAAA", ""),
        ("Via", "/x", ""),
    ],
)
def test_a_header_that_may_carry_another_method_or_path_is_told(name: str, value: str, what: str) -> None:
    method, path = head.as_judged("GET", "/x", [(name.encode(), value.encode())])
    assert (method != "GET", path != "/x") == (what == "method", what == "path")


@given(HEADS)
@example(GOOD)
def test_any_head_is_read_or_refused(raw: bytes) -> None:
    raw = raw.replace(head.END, b"") + head.END
    try:
        found = head.parse_head(raw)
    except head.BadHead as error:
        assert refusal.response(error.status, str(error)).count(head.END) == 1
        return
    names = [name.lower() for name, _value in found.fields]
    assert all(names.count(name) <= 1 for name in (b"host", b"content-length", b"transfer-encoding"))
    assert not (b"content-length" in names and b"transfer-encoding" in names)
    assert not any(bad in value for _name, value in found.fields for bad in (b"\r", b"\n", b"\0"))
    for parse in (parse_connect, lambda one: parse_target(one, None)):
        try:
            parse(found)
        except head.BadHead:
            pass


@given(HEADS)
def test_a_head_that_was_read_says_the_same_when_it_is_read_again(raw: bytes) -> None:
    try:
        found = head.parse_head(raw.replace(head.END, b"") + head.END)
    except head.BadHead:
        return
    first = b"%s %s HTTP/1.%d" % (found.method.encode(), found.target, found.minor)
    again = b"\r\n".join([first, *(b"%s: %s" % field for field in found.fields)]) + head.END
    assert head.parse_head(again)._replace(raw=b"") == found._replace(raw=b"")


def test_what_is_for_one_connection_stays_there() -> None:
    fields = [(b"Connection", b"close, X-One"), (b"x-one", b"1"), (b"X-Two", b"2"), (b"TE", b"x"), (b"Cookie", b"c")]
    assert head.end_to_end(fields) == [(b"X-Two", b"2"), (b"Cookie", b"c")]


@given(st.text())
def test_a_refusal_is_one_response_whatever_it_is_about(text: str) -> None:
    said = refusal.response(403, refusal.denied(text, 443, text))
    top, _, body = said.partition(head.END)
    assert said.isascii()
    assert b"Content-Length: %d" % len(body) in top.split(b"\r\n")
    assert len(top.split(b"\r\n")) == 4


# --- TLS ---


def real_hello(name: str | None = "good.example", *alpn: str) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    if alpn:
        context.set_alpn_protocols(list(alpn))
    outside = ssl.MemoryBIO()
    side = context.wrap_bio(ssl.MemoryBIO(), outside, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    return outside.read()


REAL = real_hello()


def test_a_real_hello_says_its_name_and_protocols() -> None:
    assert client_hello.parse_hello(real_hello("good.example", "h2", "http/1.1")) == (
        b"good.example",
        (b"h2", b"http/1.1"),
    )
    assert client_hello.parse_hello(real_hello(None)) == (None, ())
    assert client_hello.parse_hello(REAL + b"early data") == (b"good.example", ())


@each("size", [1, 2, 3, 4, 5, 6, 7, 100, 1000])
def test_a_hello_in_records_of_any_size(size: int) -> None:
    body = REAL[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    records = b"".join(REAL[:3] + len(part).to_bytes(2, "big") + part for part in parts)
    for end in range(len(records)):
        assert client_hello.parse_hello(records[:end]) is None
    assert client_hello.parse_hello(records) == client_hello.parse_hello(REAL)


def with_extensions(*extensions: tuple[int, bytes], tail: bytes = b"") -> bytes:
    inside = b"".join(struct.pack("!HH", kind, len(data)) + data for kind, data in extensions)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\2\x13\x01" + b"\1\0" + struct.pack("!H", len(inside)) + inside + tail
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def names(*one: bytes, kind: int = 0) -> bytes:
    inside = b"".join(bytes((kind,)) + struct.pack("!H", len(name)) + name for name in one)
    return struct.pack("!H", len(inside)) + inside


def test_an_encrypted_hello_says_its_outer_name_which_is_not_the_one_it_means() -> None:
    outer = with_extensions((0, names(b"public.example")), (0xFE0D, b"\0\0\1\0\1\x42\0\0\0\4abcd"))
    assert client_hello.parse_hello(outer) == (b"public.example", ())


def test_a_hello_by_hand() -> None:
    assert client_hello.parse_hello(with_extensions((0, names(b"a.example")))) == (b"a.example", ())
    assert client_hello.parse_hello(with_extensions((10, b"x"))) == (None, ())


@each(
    "data",
    [
        with_extensions((0, names(b"a.example")), (0, names(b"b.example"))),
        with_extensions((0, names(b"a.example", b"b.example"))),
        with_extensions((0, names(b"a.example", kind=1))),
        with_extensions((0, names(b""))),
        with_extensions((0, names(b"a.example") + b"x")),
        with_extensions((0, names(b"a.example")[:-1])),
        with_extensions((0, names(b"a.example")), tail=b"x"),
        with_extensions((0, b"")),
        b"\x16\x03\x01\x00\x00",
        b"\x16\x02\x01\x00\x05abcde",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x01\x01\x00\x00",
        b"\x16\x03\x01\x40\x01" + bytes(20),
        REAL[:3] + (len(REAL) - 4).to_bytes(2, "big") + REAL[5:] + b"\x02",
    ],
)
def test_hellos_that_could_be_read_in_two_ways_are_none(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        client_hello.parse_hello(data)


@given(st.integers(0, len(REAL) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_a_hello_with_anything_changed_in_it(at: int, put: bytes, cut: int) -> None:
    data = REAL[:at] + put + REAL[at + cut :]
    try:
        found = client_hello.parse_hello(data)
    except ValueError:
        return
    assert found is None or found.name is None or isinstance(found.name, bytes)


@given(st.one_of(st.binary(), HEADS))
def test_the_first_words_are_of_some_kind(data: bytes) -> None:
    kinds = {client_hello.kind_of(data[:length]) for length in range(len(data) + 1)} - {None}
    assert len(kinds) <= 1  # and stay what they are, whatever follows


@each(
    ("data", "kind"),
    [
        (b"\x16", "tls"),
        (b"GET / HTTP/1.1\r\n", "http"),
        (b"GET / HTTP/1.1", None),
        (b"GE", None),
        (b"M-SEARCH * HTTP/1.1\r\n", "http"),
        (b"EHLO x\r\n", "raw"),
        (b"PRI * HTTP/2.0\r\n", "raw"),
        (b"SSH-2.0-x\r\n", "raw"),
        (b"get / HTTP/1.1\r\n", "raw"),
        (b"\0\0\0\x08", "raw"),
        (b"A" * 40, "raw"),
        (b" GET / HTTP/1.1\r\n", "raw"),
    ],
)
def test_kinds_of_first_words(data: bytes, kind: str | None) -> None:
    assert client_hello.kind_of(data) == kind


# --- SOCKS ---


@given(st.binary(max_size=300))
def test_any_socks_request_is_read_or_refused(data: bytes) -> None:
    for parse in (socks.parse_greeting, socks.parse_request):
        try:
            parse(data)
        except socks.BadSocks as error:
            assert len(socks.reply(error.code)) == 10
    try:
        found = socks.parse_request(b"\x05\x01\x00\x03" + bytes((len(data) % 256,)) + data)
    except socks.BadSocks:
        return
    assert found is None or parse_host(found[0].host.text.encode()) == found[0].host


# --- DNS ---


def question(name: bytes, kind: int = 1, flags: int = 0x100) -> bytes:
    labels = b"".join(bytes((len(label),)) + label for label in name.split(b".")) if name else b""
    return struct.pack("!6H", 7, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


@given(st.one_of(st.binary(max_size=600), st.binary(max_size=60).map(lambda tail: question(b"a.example")[:12] + tail)))
def test_any_dns_message_is_read_or_refused(data: bytes) -> None:
    try:
        found = dns.parse_question(data)
    except dns.BadMessage as error:
        assert error.answer == b"" or (error.answer[:2] == data[:2] and error.answer[2] & 0x80)
        return
    reply = dns.answer(found, dns.NO_NAME)
    assert reply[:2] == data[:2]
    assert len(reply) <= 12 + 255 + 4


@each(
    ("data", "code"),
    [
        (question(b"a.example", flags=0x8100), None),
        (question(b"a.example")[:11], None),
        (question(b"a.example", flags=0x2900), dns.NOT_IMPLEMENTED),
        (question(b"a.example")[:20], dns.FORMAT_ERROR),
        (question(b"a.example")[:12] + b"\xc0\x0c\0\1\0\1", dns.FORMAT_ERROR),
        (question(b"a.example").replace(b"\0\1\0\0\0\0\0\0", b"\0\2\0\0\0\0\0\0", 1), dns.FORMAT_ERROR),
        (question(b".".join([b"a" * 63] * 5)), dns.FORMAT_ERROR),
        (question(b"a.example")[:-1] + b"\3", dns.REFUSED),
    ],
)
def test_bad_dns_messages(data: bytes, code: int | None) -> None:
    with pytest.raises(dns.BadMessage) as caught:
        dns.parse_question(data)
    assert (caught.value.answer[3] & 15 if caught.value.answer else None) == code


def test_labels_with_dots_in_them_are_no_names() -> None:
    data = question(b"x").replace(b"\1x\0", b"\x0ba.good.exam\0")
    assert dns.parse_question(data).host is None
    assert dns.parse_question(question(b"GOOD.Example")).host == "good.example"
    assert dns.parse_question(question(b"")).host is None


def test_an_answer_repeats_the_question_and_gives_addresses() -> None:
    found = dns.parse_question(question(b"a.example") + b"\0\0\x29\x10\0\0\0\0\0\0\0")  # with an OPT record
    reply = dns.answer(found, dns.NO_ERROR, (bytes((198, 18, 1, 0)),))
    assert reply == (
        b"\0\7\x81\x80\0\1\0\1\0\0\0\0\1a\7example\0\0\1\0\1" + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc6\x12\1\0"
    )


# --- addresses that stand for names ---


def test_names_and_addresses_stand_for_each_other() -> None:
    names_ = Synthetic()
    pairs = {name: names_.addresses(name) for name in (f"h{number}.example" for number in range(1000))}
    assert len({address for pair in pairs.values() for address in pair}) == 2000
    for name, pair in pairs.items():
        assert names_.addresses(name) == pair
        assert [names_.name(address) for address in pair] == [name, name]
        assert all(is_synthetic(address) for address in pair)
    assert names_.name(bytes((8, 8, 8, 8))) is None
    assert not is_synthetic(bytes((198, 20, 0, 0)))


def test_the_names_that_were_not_asked_for_lately_are_forgotten() -> None:
    names_ = Synthetic()
    first, second = names_.addresses("first.example"), names_.addresses("second.example")
    for number in range(MOST - 1):
        names_.addresses(f"h{number}.example")
        names_.addresses("first.example")
    assert names_.name(first[0]) == "first.example"
    assert names_.name(second[0]) is None  # and is nobody else's for a long time
    assert names_.addresses("second.example") != second


def test_a_whole_range_of_names_goes_round() -> None:
    names_ = Synthetic()
    kept = names_.addresses("kept.example")[0]
    for number in range(140_000):
        names_.addresses(f"h{number}.example")
        if number % 1000 == 0:
            assert names_.addresses("kept.example")[0] == kept
    assert names_.name(kept) == "kept.example"
