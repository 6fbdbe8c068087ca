"""Two texts beside each other: pieces that make up the whole, and blocks that an apply knows by their numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.text import hunk
from mudroom.ext.review.core import difference
from mudroom.ext.review.core.difference import DifferenceHunk, Texts

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"  d\n", b"def e\n", b"\r\n", b"\xff\n"]), max_size=14)
TEXT = st.builds(lambda lines, last: b"".join(lines) + last, LINES, st.sampled_from([b"", b"z", b"a"]))


def all_of(texts: Texts, lines: int = 2_000) -> list[DifferenceHunk]:
    found: list[DifferenceHunk] = []
    first: int | None = 0
    while first is not None:
        hunks, first = texts.page(first, lines)
        found += hunks
    return found


@given(TEXT, TEXT, st.integers(0, 4), st.integers(1, 9))
def test_the_hunks_are_those_that_are_chosen_from(old: bytes, new: bytes, context: int, lines: int) -> None:
    known = hunk.hunks(old, new, context)
    found = all_of(Texts(old, new, context), lines)
    assert [one.blocks for one in found] == [one.blocks for one in known]
    for mine, theirs in zip(found, known, strict=True):
        signed = [line.kind for line in mine.lines]
        assert signed == [line[:1].decode() for line in theirs.lines]
        numbers = (mine.old_start, mine.old_lines, mine.new_start, mine.new_lines)
        assert theirs.header == b"@@ -%d,%d +%d,%d @@\n" % numbers


@given(TEXT, TEXT, st.integers(0, 3))
def test_numbers_and_blocks_of_lines(old: bytes, new: bytes, context: int) -> None:
    texts = Texts(old, new, context)
    before, after = old.split(b"\n"), new.split(b"\n")
    for line in (line for one in all_of(texts) for line in one.lines):
        assert (line.block < 0) == (line.kind == " ")
        assert (line.old > 0) == (line.kind != "+") and (line.new > 0) == (line.kind != "-")
        for number, side in ((line.old, before), (line.new, after)):
            if number:
                raw = side[number - 1]
                assert line.text == raw.decode("utf-8", "backslashreplace").replace("\r", "\\r")
                assert line.ends == (number < len(side))


@given(TEXT, TEXT)
def test_all_blocks_are_the_new_text_and_none_the_old(old: bytes, new: bytes) -> None:
    blocks = {number for one in all_of(Texts(old, new)) for number in one.blocks}
    assert blocks == set(range(len(Texts(old, new).blocks)))
    assert hunk.select_blocks(old, new, blocks) == new
    assert hunk.select_blocks(old, new, ()) == old


@given(TEXT, TEXT, st.integers(0, 3), st.integers(2, 7))
def test_pieces_hold_every_line_once(old: bytes, new: bytes, context: int, most: int) -> None:
    whole = [line for one in all_of(Texts(old, new, context)) for line in one.lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference, "PIECE", most)
        texts = Texts(old, new, context)
        pieces = all_of(texts, 1)
    assert len(texts) == len(pieces)
    assert all(len(one.lines) <= most for one in pieces)
    together = [line._replace(words=()) for one in pieces for line in one.lines]
    bare = [line._replace(words=()) for line in whole]
    assert sorted(together) == sorted(bare)
    for sign in " -", " +":  # the order of each side is kept
        assert [line for line in together if line.kind in sign] == [line for line in bare if line.kind in sign]
    for one in pieces:
        assert one.old_lines == sum(line.old > 0 for line in one.lines)
        assert one.new_lines == sum(line.new > 0 for line in one.lines)
        firsts = [line.old for line in one.lines if line.old], [line.new for line in one.lines if line.new]
        assert one.old_start == firsts[0][0] if firsts[0] else True
        assert one.new_start == firsts[1][0] if firsts[1] else True


def test_a_file_of_a_hundred_thousand_new_lines_comes_in_pieces() -> None:
    texts = Texts(b"", b"".join(b"line %d\n" % n for n in range(100_000)))
    first, following = texts.page()
    assert (len(texts), len(first), following) == (100, 2, 2)
    last, none = texts.page(99)
    assert (last[0].lines[-1].text, last[0].continued, none) == ("line 99999", True, None)
    assert {one.blocks for one in (*first, *last)} == {(0,)}


def test_headings_are_the_nearest_line_that_is_not_indented() -> None:
    old = b"class A:\n    x = 1\n\n    def f(self):\n" + b"        pass\n" * 5 + b"        old\n"
    (found,), _following = Texts(old, old.replace(b"old", b"new")).page()
    assert found.section == "class A:"
    (top,), _following = Texts(b"old\n", b"new\n").page()
    assert top.section == ""


@given(TEXT, TEXT, st.integers(0, 2))
def test_every_hunk_has_its_own_heading(old: bytes, new: bytes, context: int) -> None:
    texts, above = Texts(old, new, context), old.split(b"\n")
    for one in all_of(texts):
        start = one.old_start - (one.old_lines > 0)
        starts = [line for line in above[:start] if line[:1].isalpha()]
        assert one.section == (starts[-1].decode() if starts else "")


def test_a_page_beyond_the_last_is_empty() -> None:
    assert Texts(b"a\n", b"b\n").page(7) == ((), None)


def test_the_words_of_a_changed_line_are_marked() -> None:
    (found,), _following = Texts(b"a\nreturn one\nb\n", b"a\nreturn two\nb\n").page()
    assert [(line.kind, [line.text[a:b] for a, b in line.words]) for line in found.lines] == [
        (" ", []),
        ("-", ["one"]),
        ("+", ["two"]),
        (" ", []),
    ]
