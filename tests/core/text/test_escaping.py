"""A line of a file as text: nothing of it acts, nothing of it is hidden, and every byte of it is accounted for."""

from __future__ import annotations

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from mudroom.core.text.escaping import WIDEST, escape_line
from tiers import each

LINES = st.one_of(st.binary(max_size=60), st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))


def read_back(line: bytes, widest: int) -> bytes:
    """All of a line, looked at piece by piece; an escape gives back what it stands for."""
    found, start = b"", 0
    while True:
        text, odd, cut, until = escape_line(line, start, widest)
        at = 0
        for first, last in odd:
            found += text[at:first].encode() + unescaped(text[first:last])
            at = last
        found += text[at:].encode()
        if not cut:
            return found
        assert until > start
        assert cut == len(line) - until
        start = until


def unescaped(escape: str) -> bytes:
    if escape in ("\\r", "\\n"):
        return {"\\r": b"\r", "\\n": b"\n"}[escape]
    code = int(escape[2:].strip("{}"), 16)
    if escape[1] != "x" or code < 0x80:
        return chr(code).encode("utf-8", "surrogatepass")
    return bytes([code])


@given(LINES, st.integers(12, 80))
@example(b"a\xe2\x80\xaeb", 80)
@example("😀".encode() * 9 + b"\xff", 12)
def test_every_byte_is_accounted_for(line: bytes, widest: int) -> None:
    assert read_back(line, widest) == line


@given(LINES, st.integers(12, 80))
def test_no_text_is_wider_than_asked_and_spans_lie_within(line: bytes, widest: int) -> None:
    text, odd, _cut, _until = escape_line(line, 0, widest)
    assert len(text) <= widest
    at = 0
    for start, end in odd:
        assert at <= start < end <= len(text)
        assert text[start] == "\\"
        at = end


ACTING = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
SEEN = {
    *map(chr, range(0x600, 0x606)), *"\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd",
    *map(chr, range(0x13430, 0x13440)),
}  # fmt: skip
"""Of those: marks of Arabic and of hieroglyphs, which have a shape or are read as letters are."""


@given(LINES)
@example("".join(map(chr, range(0xD800))).encode())
@example("".join(map(chr, range(0xE000, 0x20000))).encode())
@example("".join(map(chr, range(0xE0000, 0x110000))).encode())
def test_nothing_that_acts_is_in_the_text(line: bytes) -> None:
    text = escape_line(line, widest=1 << 21).text
    text.encode("utf-8")  # no half of anything
    assert {c for c in text if unicodedata.category(c) in ACTING} <= {"\t", *SEEN}


@each(
    ("line", "text"),
    [
        (b"if (a) {\tb", "if (a) {\tb"),
        (b"end\r", "end\\r"),
        (b"\x1b[31mred", "\\x1b[31mred"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202e\u2066x".encode(), "\\u{202e}\\u{2066}x"),
        ("\ufeffimport os".encode(), "\\u{feff}import os"),
        ("zero\u200bwidth".encode(), "zero\\u{200b}width"),
        ("\u3164 = 1".encode(), "\\u{3164} = 1"),
        ("tag\U000e0041".encode(), "tag\\u{e0041}"),
        ("a\xa0b".encode(), "a\\u{a0}b"),
        ("naïve 日本語 😀 ☕\ufe0f".encode(), "naïve 日本語 😀 ☕\ufe0f"),
        ("a\ufe0f".encode(), "a\\u{fe0f}"),
        ("\u3164\ufe0f".encode(), "\\u{3164}\\u{fe0f}"),
        ("\U0001d173 \U0001bca0".encode(), "\\u{1d173} \\u{1bca0}"),
        (rb"a literal \x1b", r"a literal \x1b"),
        (b"", ""),
    ],
)
def test_what_is_shown(line: bytes, text: str) -> None:
    assert escape_line(line).text == text


def test_what_is_written_like_an_escape_is_told_from_one() -> None:
    assert escape_line(rb"\x1b").odd == ()
    assert escape_line(b"\x1b").odd == ((0, 4),)


def test_five_megabytes_in_one_line_are_cut() -> None:
    line = b"x" * 5_000_000
    text, _odd, cut, until = escape_line(line)
    assert (len(text), cut, until) == (WIDEST, 5_000_000 - WIDEST, WIDEST)
    assert escape_line(line, until).text == text
