"""Some lines of a file, read by chunks: as if it had been read whole."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.text.escaping import WIDEST
from mudroom.core.text.linediff import split_lines
from mudroom.ext.review.core.difference import line_of
from mudroom.ext.web.api.file import ENOUGH, excerpt
from mudroom.ext.web.api.region import utf16_spans

DATA = st.lists(st.sampled_from([b"a", b"\n", b"\xff", "é".encode(), b"\r", b"bc"]), max_size=40).map(b"".join)


def chunked(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(DATA, st.integers(1, 9), st.integers(1, 14), st.integers(0, 9), st.integers(0, 6))
def test_as_if_it_had_been_read_whole(data: bytes, size: int, first: int, count: int, column: int) -> None:
    total, lines, _whole = excerpt(chunked(data, size), "new", first, count, column)
    whole = split_lines(data)
    assert total == len(whole)
    expected = [
        line_of(raw, " ", 0, number, start=min(column if number == first else 0, len(raw.removesuffix(b"\n"))))
        for number, raw in enumerate(whole, 1)
        if first <= number < first + count
    ]
    assert list(lines) == expected


def test_a_long_line_by_and_by() -> None:
    data = b"".join(b"%07d " % n for n in range(3_000)) + b"\nlast"
    text, column = "", 0
    while True:
        total, (line,), _whole = excerpt(chunked(data, 1000), "old", 1, 1, column)
        assert total == 2 and (line.old, line.new, line.ends) == (1, 0, True)
        text += line.text
        if not line.cut:
            break
        assert len(line.text) == WIDEST
        column = line.until
    assert text.encode() == data.split(b"\n")[0]


def test_no_more_than_enough_is_given() -> None:
    data = (b"x" * WIDEST + b"\n") * 1_000
    total, lines, _whole = excerpt(chunked(data, 1 << 16), "new", 1, 1_000)
    assert total == 1_000
    assert ENOUGH <= sum(len(line.text) for line in lines) < ENOUGH + WIDEST


def test_lines_far_below() -> None:
    data = b"".join(b"%d\n" % n for n in range(1, 100_001))
    total, lines, _whole = excerpt(chunked(data, 1 << 16), "new", 99_999, 5)
    assert total == 100_000
    assert [line.text for line in lines] == ["99999", "100000"]


def test_no_more_is_read_than_was_said() -> None:
    read = []

    def endless() -> Iterator[bytes]:
        while True:
            read.append(1)
            yield b"line\n" * 100

    found = excerpt(endless(), "new", 2, 3, most=5_000)
    assert (found.total, [line.new for line in found.lines], found.whole) == (1_000, [2, 3, 4], False)
    assert excerpt(endless(), "new", 10**12, 3, most=5_000) == (1_000, (), False)
    assert len(read) == 22


def test_a_line_without_end_is_shown_as_one_that_is_cut() -> None:
    found = excerpt((b"\0" * 1_000_000 for _time in range(10)), "new", 1, 5, most=3_000_000)
    (line,) = found.lines
    assert (found.total, found.whole, line.ends) == (1, False, True)
    assert line.cut > 2_000_000


def test_of_a_line_that_was_not_read_to_its_end_nothing_is_shown() -> None:
    data = [b"a\nb", b"c\nd\n"]
    found = excerpt(data, "new", 1, 5, most=3)
    assert ([line.text for line in found.lines], found.whole) == (["a"], False)
    assert excerpt(data, "new", 1, 5, most=7).whole


@given(st.text(max_size=30).filter(lambda text: text.isprintable()), st.data())
def test_spans_as_javascript_counts(text: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2)))
    span = (places[0], places[1])
    ((start, end),) = utf16_spans(text, [span])
    units = text.encode("utf-16-le")
    assert units[2 * start : 2 * end].decode("utf-16-le") == text[span[0] : span[1]]
