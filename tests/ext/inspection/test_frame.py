"""Frames and fields of HTTP/2, without a connection: how they are cut makes no difference, bounds are bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network.host import Authority, parse_host
from mudroom.ext.inspection.frame import LONGEST, PREFACE, Bucket, Flood, Frames, Goaway, goaway
from mudroom.ext.inspection.pseudo_header import parse_request, parse_response, parse_trailers
from mudroom.net.protocol.head import BadHead
from tiers import each

ORIGIN = Authority(parse_host(b"api.example"), 443)


def frame(kind: int, body: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


FRAMES = st.lists(st.builds(frame, st.sampled_from([0, 1, 4, 8, 9, 99]), st.binary(max_size=60)), max_size=8)


@given(FRAMES, FRAMES, st.integers(1, 40), st.booleans())
def test_whole_frames_pass_without_goaway_however_they_are_cut(
    before: list[bytes], after: list[bytes], size: int, preface: bool
) -> None:
    start = PREFACE if preface else b""
    data = start + b"".join(before) + goaway(7, 3) + b"".join(after)
    frames, passed = Frames(start), b""
    for at in range(0, len(data), size):
        passed += frames.feed(data[at : at + size], 0.0)
    assert passed == start + b"".join(before) + b"".join(after)
    assert frames.goaway == Goaway(7, 3)


@given(st.binary(max_size=500))
def test_nonsense_passes_or_is_a_flood(data: bytes) -> None:
    try:
        passed = Frames().feed(data, 0.0)
    except Flood as flood:
        assert str(flood)
    else:
        assert len(passed) <= len(data)


def test_a_frame_is_too_long_at_its_head() -> None:
    with pytest.raises(Flood, match="16385 bytes"):
        Frames().feed((LONGEST + 1).to_bytes(3, "big") + bytes(6), 0.0)


def test_resets_come_at_a_limited_rate() -> None:
    frames, reset = Frames(resets=Bucket(10, 5)), frame(3, bytes(4))
    frames.feed(reset * 10, 0.0)
    with pytest.raises(Flood, match="reset"):
        frames.feed(reset, 0.1)
    frames = Frames(resets=Bucket(10, 5))
    for second in range(100):
        frames.feed(reset * 5, float(second))


IDLE = {
    "ping": frame(6, bytes(8)), "settings": frame(4, b""), "priority": frame(2, bytes(5)), "data": frame(0, b""),
    "padding": frame(0, b"\x05" + bytes(5), flags=8), "continuation": frame(9, b""), "update": frame(8, bytes(4)),
    "goaway": goaway(0, 0), "a server's reset": frame(3, bytes(4)),
    **{f"unknown {kind}": frame(kind, b"abc") for kind in (10, 12, 16, 99, 255)},
}  # fmt: skip


@each("name", IDLE)
def test_frames_that_say_nothing_come_at_a_limited_rate(name: str) -> None:
    Frames().feed(IDLE[name] * 20_000, 0.0)
    with pytest.raises(Flood, match="says nothing"):
        Frames().feed(IDLE[name] * 20_001, 0.0)


@each("said", [frame(0, b"", flags=1), frame(0, b"a"), frame(0, b"\x01ab", flags=8), frame(1, b"")])
def test_frames_that_say_something_are_not_counted(said: bytes) -> None:
    Frames().feed(said * 30_000, 0.0)


def test_windows_are_updated_as_often_as_data_was_sent() -> None:
    frames, update = Frames(), frame(8, bytes(4))
    for _frame in range(30_000):
        frames.has_sent(1)
    frames.has_sent(1 << 30)
    frames.feed(update * (2 * 30_001 + (1 << 20) + 20_000), 0.0)
    with pytest.raises(Flood, match="says nothing"):
        frames.feed(update, 0.0)


GOOD = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"API.example:443"), (b":path", b"/a?b")]


def test_a_request_is_read() -> None:
    asked = parse_request([*GOOD, (b"host", b"api.example"), (b"cookie", b"a"), (b"cookie", b"b")], ORIGIN)
    assert asked == ("GET", b"/a?b", [(b"cookie", b"a"), (b"cookie", b"b")])
    assert parse_request([(b":method", b"OPTIONS"), *GOOD[1:3], (b":path", b"*")], ORIGIN).path == b"*"


@given(
    st.binary(max_size=20),
    st.one_of(st.binary(max_size=30), st.sampled_from([b"a\r\nb", b"a\0b", b" a", b"a ", b"\x7f"])),
)
def test_no_field_passes_that_could_end_a_line(name: bytes, value: bytes) -> None:
    try:
        asked = parse_request([*GOOD, (name, value)], ORIGIN)
    except BadHead as error:
        assert str(error).isprintable()
    else:
        for part in (name, value):
            assert not set(part) & set(b"\r\n\0")
        assert value == value.strip(b" \t")
        assert name == name.lower()
        assert asked.fields in ([(name, value)], [])


@each(
    "headers",
    [
        GOOD[1:],
        GOOD[:2] + GOOD[3:],
        [*GOOD, (b":path", b"/b")],
        [*GOOD, (b":status", b"200")],
        [*GOOD, (b"a", b"b"), (b":method", b"GET")],
        [*GOOD, (b"content-length", b"1"), (b"content-length", b"1")],
        [*GOOD, (b"content-length", b"+1")],
        [*GOOD, *[(b"a", b"b")] * 300],
        [*GOOD, (b"host", b"other.example")],
        [*GOOD, (b"upgrade", b"h2c")],
        [*GOOD, (b"proxy-authorization", b"x")],
    ],
)
def test_requests_that_are_none_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(BadHead):
        parse_request(headers, ORIGIN)


def test_responses_and_trailers_are_read_as_strictly() -> None:
    assert parse_response([(b":status", b"204"), (b"a", b"b")]) == (204, [(b"a", b"b")])
    assert parse_trailers([(b"grpc-status", b"0")]) == [(b"grpc-status", b"0")]
    for headers in (
        [],
        [(b":status", b"2000")],
        [(b":status", b"200"), (b":path", b"/")],
        [(b":status", b"200"), (b"a", b"\n")],
    ):
        with pytest.raises(BadHead):
            parse_response(headers)
    with pytest.raises(BadHead, match="trailers"):
        parse_trailers([(b":status", b"200")])


def test_headers_that_do_not_end_are_bounded() -> None:
    frames, part = Frames(), bytes(LONGEST)
    for _ in range(100):
        frames.feed(frame(1, part) + frame(9, part) + frame(9, part, 4), 0.0)
    with pytest.raises(Flood, match="headers of more than"):
        frames.feed(frame(1, part) + frame(9, part) + frame(9, part) + frame(9, b"x"), 0.0)
