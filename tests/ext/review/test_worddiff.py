"""The words that differ between two versions of a line."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.review.core.worddiff import Budget, diff_words, differing_spans, pair_lines
from tiers import each

WORDS = st.lists(st.sampled_from(["foo", "bar", "x", "1", " ", "  ", "(", ")", "=", "é", "😀"]), max_size=12).map(
    "".join
)
LINES = st.lists(WORDS, max_size=8)


def without(line: str, marked: tuple[tuple[int, int], ...]) -> str:
    for start, end in reversed(marked):
        line = line[:start] + "\0" + line[end:]
    return "".join(line.replace("\0", "").split())


@given(WORDS, WORDS)
def test_what_is_not_marked_is_the_same(old: str, new: str) -> None:
    before, after = differing_spans(old, new, Budget())
    for line, marked in ((old, before), (new, after)):
        at = 0
        for start, end in marked:
            assert at <= start < end <= len(line)
            at = end
    if before or after:
        assert without(old, before) == without(new, after)


@given(LINES, LINES)
def test_pairs_are_in_order_and_each_line_is_in_one(old: list[str], new: list[str]) -> None:
    found = pair_lines(old, new, Budget())
    assert found == sorted(found)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))
    assert all(i < len(old) and j < len(new) for i, j in found)


@given(LINES, LINES)
def test_there_is_one_answer_for_each_line(old: list[str], new: list[str]) -> None:
    found = diff_words(old, new, Budget())
    assert (len(found.old), len(found.new)) == (len(old), len(new))


def marked(old: str, new: str) -> tuple[list[str], list[str]]:
    before, after = differing_spans(old, new, Budget())
    return [old[a:b] for a, b in before], [new[a:b] for a, b in after]


@each(
    ("old", "new", "gone", "come"),
    [
        ("return alpha", "return beta", ["alpha"], ["beta"]),
        ("f(a, b)", "f(a, b, c)", [], [", c"]),
        ("x = one two three four", "x = uno dos three four", ["one two"], ["uno dos"]),
        ("    if a:", "        if a:", ["    "], ["        "]),
        ("completely different", "nothing = [alike]", [], []),
        ("same", "same", [], []),
    ],
)
def test_what_is_marked(old: str, new: str, gone: list[str], come: list[str]) -> None:
    assert marked(old, new) == (gone, come)


def test_a_line_that_was_put_in_before_does_not_shift_the_pairs() -> None:
    old = ["def area(width, height):", "    return width * height"]
    new = ["# of a rectangle", "def area(width, height, depth):", "    return width * height * depth"]
    assert pair_lines(old, new, Budget()) == [(0, 1), (1, 2)]


def test_lines_that_are_not_alike_are_not_paired() -> None:
    assert pair_lines(["import os"], ["class Thing(Base):"], Budget()) == []


def test_many_lines_are_paired_one_by_one_if_they_are_alike() -> None:
    old = [f"value_{n} = old({n})" for n in range(2_000)]
    new = [f"value_{n} = new({n})" for n in range(2_000)]
    found = diff_words(old, new, Budget())
    assert [line[a:b] for line, marks in zip(new, found.new, strict=True) for a, b in marks] == ["new"] * 2_000


def test_the_work_is_bounded() -> None:
    """Lines that are alike in their words, and in no order of them: 20 seconds once, on one page."""
    line = "()[]{}<>+-*/=!,;:" * 100
    old, new = [line[n:] for n in range(1, 500)], [line[::-1][n:] for n in range(1, 500)]
    spent: list[int] = []

    class Counted(Budget):
        def spend(self, work: int) -> bool:
            allowed = super().spend(work)
            spent.append(work * allowed)
            return allowed

    diff_words(old, new, Counted(100_000))
    assert sum(spent) <= 100_000


def test_the_middle_of_what_takes_too_long_is_marked_as_one() -> None:
    old, new = "same " + "a b " * 200 + "end " * 500, "same " + "b c " * 200 + "end " * 500
    assert marked(old, new) == ([old[5:804]], [new[5:804]])
    assert marked("x = a b c d", "x = b a d c") != (["a b c d"], ["b a d c"])
