"""Conflicting places decided one by one, by a side or by lines: what becomes of the text, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.merge import resolution_words
from mudroom.core.merge.diff3 import MergedText, merge3
from mudroom.core.merge.marker import resolve
from mudroom.core.merge.resolution_words import Choice, Either, Side, Take, choice_words, take_words
from mudroom.core.merge.resolve_hunks import resolve_text, rewrite_lines
from mudroom.core.text.linediff import split_lines
from mudroom.typing import get_args
from tiers import each

BASE = b"1\n2\n3\n4\n5\n6\n7\n"


def merged(base: bytes = BASE, ours: bytes = b"1\nours\n3\n4\n5\nours\n7\n", theirs: bytes = b"") -> MergedText:
    return merge3(base, ours, theirs or ours.replace(b"ours", b"theirs"))


CHOICES: list[tuple[list[Choice], bytes]] = [
    (["ours", "theirs"], b"1\nours\n3\n4\n5\ntheirs\n7\n"),
    (["base", "both"], b"1\n2\n3\n4\n5\nours\ntheirs\n7\n"),
    ([["a", "b"], []], b"1\na\nb\n3\n4\n5\n7\n"),
    ([[""], ["é"]], "1\n\n3\n4\n5\né\n7\n".encode()),
]


@pytest.mark.parametrize(("choices", "expected"), CHOICES)
def test_place_by_place(choices: list[Choice], expected: bytes) -> None:
    assert resolve_text(merged(), choices) == expected


ENDS: list[tuple[bytes, bytes, list[str], bytes]] = [
    (b"1\r\n2\r\n", b"1\r\nours\r\n", ["a"], b"1\r\na\r\n"),
    (b"1\r\n2\r\n", b"1\r\nours\r\n", ["a\r"], b"1\r\na\r\n"),
    (b"1\n2\n", b"1\nours\n", ["a\r"], b"1\na\r\n"),
    (b"1\n2", b"1\nours", ["a", "b"], b"1\na\nb"),
    (b"1\n2", b"1\nours\n", ["a"], b"1\na\n"),
    (b"1\n2\n", b"1\nours", ["ours", "more"], b"1\nours\nmore"),
    (b"1\n2\n", b"1\nours\r\nx\n", ["x", "ours", "y"], b"1\nx\nours\r\ny\r\n"),
    (b"1\r\n2\r\n3\r\n", b"1\r\nours\r\n3\r\n", ["a", ""], b"1\r\na\r\n\r\n3\r\n"),
]


@each(("base", "ours", "lines", "expected"), ENDS)
def test_how_lines_end(base: bytes, ours: bytes, lines: list[str], expected: bytes) -> None:
    assert resolve_text(merged(base, ours), [lines]) == expected


@pytest.mark.parametrize(
    ("before", "lines", "expected"),
    [
        (b"a\r\nx\nb\na\n", ["x", "b", "a"], b"x\nb\na\n"),  # the first of two is gone
        (b"a\r\nx\nb\na\n", ["a", "x", "b"], b"a\r\nx\nb\n"),
        (b"x\na\nb\na\r\n", ["b", "a", "new", "x"], b"b\na\r\nnew\nx\n"),  # one is gone, one has been moved
        (b"x\na\r\n", ["x", "a", "a"], b"x\na\r\na\r\n"),  # repeated
        (b"\n1\n\r\n2\n\n", ["1", "", "2", ""], b"1\n\r\n2\n\n"),
    ],
)
def test_of_equal_lines_that_end_otherwise_each_keeps_its_own(before: bytes, lines: list[str], expected: bytes) -> None:
    assert rewrite_lines(split_lines(before), lines) == expected


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        (["ours"], "there are 2 places to decide, and 1 were decided"),
        ([["a\nb"], "ours"], "a line has no newline in it"),
        ([["\ud800"], "ours"], "a line is not valid text"),
    ],
)
def test_what_is_no_decision(choices: list[Choice], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        resolve_text(merged(), choices)


TEXTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", "é"]), st.sampled_from(["\n", "\n", "\r\n"])), max_size=8
).map(lambda lines: "".join(text + end for text, end in lines).encode())
ENDED = st.tuples(TEXTS, st.sampled_from([b"", b"end"])).map(b"".join)


@given(ENDED, ENDED, ENDED)
def test_the_projects_own_lines_are_as_they_were(base: bytes, ours: bytes, theirs: bytes) -> None:
    found = merge3(base, ours, theirs)
    conflicts = [chunk for chunk in found.chunks if chunk.kind == "conflict"]
    lines: list[Choice] = [
        [line.removesuffix(b"\n").removesuffix(b"\r").decode() for line in chunk.ours] for chunk in conflicts
    ]
    assert resolve_text(found, lines) == resolve(found, dict.fromkeys(range(len(conflicts)), "ours")).content()


def test_there_is_a_word_for_each() -> None:
    assert tuple(resolution_words.SIDES) == get_args(Side)
    assert tuple(resolution_words.TAKES) == get_args(Take)
    assert set(get_args(Either)) < set(get_args(Side))


def test_what_is_said() -> None:
    assert [choice_words(one) for one in (None, "ours", "base", [], ["x"])] == [
        "not decided", "the project's", "the original", "lines of your own", "lines of your own",
    ]  # fmt: skip
    assert [take_words(one) for one in ("theirs", "content", "other")] == [
        "decided: the fork's", "decided: merged", "decided: other",
    ]  # fmt: skip
