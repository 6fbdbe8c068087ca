"""What was chosen, read from the text that came of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_calls import within
from mudroom.core.merge.diff3 import MergedText, merge3
from mudroom.core.merge.read_resolution import read_choices
from mudroom.core.merge.resolution_words import Choice
from mudroom.core.merge.resolve_hunks import resolve_text
from tiers import each

BASE = b"0\n1\n2\n3\n4\n5\n6\n7\n"
OURS = b"0\nours\n2\n3\n4\n5\nours 6\n7\n"
THEIRS = b"0\ntheirs\n2\n3\n4, the fork's\n5\ntheirs 6\n7\n"

CHOICES: list[list[Choice]] = [
    ["ours", "theirs"],
    ["both", "base"],
    ["base", ["by", "", "hand"]],
    [[], []],
    [["theirs", "ours"], "both"],
    [["2", "3"], "ours"],  # lines that stand behind it, too
    [["é"], ["ours 6", "more"]],
]


@each("choices", CHOICES)
def test_as_it_was_said(choices: list[Choice]) -> None:
    merged = merge3(BASE, OURS, THEIRS)
    assert merged.conflicts == 2
    assert read_choices(merged, resolve_text(merged, choices)) == choices


@each(
    "content",
    [
        b"",
        b"something else\n",
        OURS,  # the fork's own line is not in it
        THEIRS + b"more\n",
        b"\n" + THEIRS,
        THEIRS.replace(b"5\n", b"5\r\n"),
        THEIRS.replace(b"theirs\n", b"\xff\n"),
        THEIRS.removesuffix(b"\n"),
    ],
)
def test_what_was_made_in_another_way(content: bytes) -> None:
    assert read_choices(merge3(BASE, OURS, THEIRS), content) is None


def test_lines_that_are_a_side_are_that_side() -> None:
    merged = merge3(BASE, OURS, THEIRS)
    assert read_choices(merged, resolve_text(merged, [["ours"], ["6"]])) == ["ours", "base"]


def test_the_way_with_fewer_lines_by_hand() -> None:
    """Whoever takes the project's for the first place finds nothing but lines for the second."""
    merged = merge3(b"s\nx\ns\ny\nend\n", b"s\na\ns\nb\nend\n", b"s\na\ns\nt\ns\nc\nend\n")
    sides: list[Choice] = ["ours", "theirs", "both", "base"]
    for side in sides:
        choices = [side] * merged.conflicts
        assert read_choices(merged, resolve_text(merged, choices)) == choices


def test_a_text_without_conflicts() -> None:
    merged = merge3(b"1\n2\n", b"1\nours\n", b"1\n2\n")
    assert read_choices(merged, b"1\nours\n") == []
    assert read_choices(merged, b"1\n2\n") is None
    assert read_choices(MergedText(()), b"") == []
    assert read_choices(MergedText(()), b"x") is None


LINE = st.tuples(st.sampled_from(["a", "b", "c", "", "é"]), st.sampled_from(["\n", "\n", "\n", "\r\n"]))
TEXTS = st.lists(LINE, max_size=10).map(lambda lines: "".join(text + end for text, end in lines).encode())
ENDED = st.tuples(TEXTS, st.sampled_from([b"", b"end"])).map(b"".join)
LINES = st.lists(st.sampled_from(["a", "b", "x", ""]), max_size=4)
SIDES: st.SearchStrategy[Choice] = st.sampled_from(["ours", "theirs", "both", "base"])


@given(ENDED, ENDED, ENDED, st.data())
def test_sides_are_always_found(base: bytes, ours: bytes, theirs: bytes, data: st.DataObject) -> None:
    merged = merge3(base, ours, theirs)
    choices = data.draw(st.lists(SIDES, min_size=merged.conflicts, max_size=merged.conflicts))
    text = resolve_text(merged, choices)
    found = read_choices(merged, text)
    assert found is not None and resolve_text(merged, found) == text
    assert all(isinstance(one, str) for one in found), "nothing was written by hand"


PLAIN = TEXTS.map(lambda text: text.replace(b"\r", b""))


@given(PLAIN, PLAIN, PLAIN, st.data())
def test_lines_are_always_found_where_all_lines_end_alike(
    base: bytes, ours: bytes, theirs: bytes, data: st.DataObject
) -> None:
    merged = merge3(base, ours, theirs)
    choices = data.draw(st.lists(SIDES | LINES, min_size=merged.conflicts, max_size=merged.conflicts))
    text = resolve_text(merged, choices)
    found = read_choices(merged, text)
    assert found is not None and resolve_text(merged, found) == text


@given(ENDED, ENDED, ENDED, ENDED)
def test_of_any_text_nothing_wrong_is_told(base: bytes, ours: bytes, theirs: bytes, content: bytes) -> None:
    merged = merge3(base, ours, theirs)
    found = read_choices(merged, content)
    assert found is None or resolve_text(merged, found) == content


@pytest.mark.parametrize("written", ["x", "same", ""])
def test_many_places_take_no_time(written: str) -> None:
    """Each of them reads in more than one way, and every line between is the same."""
    count = 5_000
    sides = [b"".join(b"%s %d\nsame\n" % (name, n) for n in range(count)) for name in (b"base", b"ours", b"theirs")]
    chunks = merge3(*sides)
    assert chunks.conflicts == count
    text = resolve_text(chunks, [[written, "same", "same"]] * count)
    found = within(10_000_000, lambda: read_choices(chunks, text))
    assert found is not None
