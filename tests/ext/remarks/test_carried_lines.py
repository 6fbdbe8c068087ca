"""Where a remark's lines are in a later version of their file."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.text.invisible_characters import ACTING
from mudroom.ext.remarks.core.carry import CarriedLines, carry
from mudroom.ext.remarks.core.prompt import LocatedRemark, prompt_of
from mudroom.ext.remarks.core.value import RemarkAnswer, ReviewRemark, format_remark, parse_remark
from tiers import each

OLD = "a b c d e f"


@each(
    ("new", "first", "last", "expected"),
    [
        ("a b c d e f", 3, 4, ("here", 3, 4)),
        ("x y a b c d e f", 3, 4, ("here", 5, 6)),  # lines above
        ("a b c d e x f", 3, 4, ("here", 3, 4)),  # lines below
        ("c d e f", 3, 4, ("here", 1, 2)),  # removed above
        ("a b x d e f", 3, 4, ("answered", 3, 4)),  # one of them changed
        ("a b c x d e f", 3, 4, ("answered", 3, 5)),  # one between them
        ("a b x c d e f", 3, 4, ("here", 4, 5)),  # directly above
        ("a b c d x e f", 3, 4, ("here", 3, 4)),  # directly below
        ("a b e f", 3, 4, ("outdated", 3, 2)),  # both gone
        ("a b d e f", 3, 4, ("answered", 3, 3)),  # one gone
        ("e f", 3, 4, ("outdated", 1, 0)),
        ("a x y z f", 3, 4, ("answered", 2, 4)),  # within a larger change
        ("e f a b c d", 3, 4, ("here", 5, 6)),  # moved as they are
        ("", 3, 4, ("outdated", 1, 0)),
        ("a b c d e f", 6, 6, ("here", 6, 6)),
        ("a b c d e", 6, 6, ("outdated", 6, 5)),
    ],
)
def test_carried(new: str, first: int, last: int, expected: tuple[str, int, int]) -> None:
    old, later = ([word.encode() + b"\n" for word in text.split()] for text in (OLD, new))
    assert carry(old, later, first, last) == CarriedLines(*expected)  # type: ignore[arg-type]


def test_lines_without_a_letter_are_not_looked_for_elsewhere() -> None:
    old = [b"a\n", b"}\n", b"b\n"]
    assert carry(old, [b"a\n", b"b\n", b"c\n", b"}\n"], 2, 2).state == "outdated"


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), min_size=1, max_size=12)


@given(LINES, LINES, st.data())
def test_lines_that_are_here_are_the_same_lines(old: list[bytes], new: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(old)))
    last = data.draw(st.integers(first, len(old)))
    found = carry(old, new, first, last)
    assert 0 <= found.first - 1 <= found.last <= len(new)
    if found.state == "here":
        assert new[found.first - 1 : found.last] == old[first - 1 : last]
    assert (found.state == "outdated") == (found.last < found.first)


@given(LINES, st.data())
def test_an_unchanged_file_leaves_each_remark_where_it_is(old: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(old)))
    last = data.draw(st.integers(first, len(old)))
    assert carry(old, old, first, last) == CarriedLines("here", first, last)


ANY = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(str.strip)


def test_the_whole_comes_first_then_files_by_path_and_line() -> None:
    remarks = [
        LocatedRemark("r1", ReviewRemark("two", "b.py", first=9), "here", 12, 12, (b"x = 1\n",)),
        LocatedRemark(
            "r2", ReviewRemark("one", "b.py", first=3, last=4, suggestion="y\nz\n"), "answered", 3, 3, (b"y\r\n",)
        ),
        LocatedRemark("r3", ReviewRemark("file", "a.py")),
        LocatedRemark("r4", ReviewRemark("all", answers=(RemarkAnswer("done", "agent"), RemarkAnswer("no")))),
        LocatedRemark("r5", ReviewRemark("gone", "c.py", first=1, side="old"), "here", 1, 1, (b"old\n",)),
    ]
    text = prompt_of(remarks).split("\n\n", 1)[1]
    assert text == (
        "Remark r4, about all of it:\n> all\n< done\n> no\n\n"
        "Remark r3, about the file a.py:\n> file\n\n"
        "Remark r2, about line 3 of b.py, which has changed since:\n| 3: y\n> one\n+ y\n+ z\n\n"
        "Remark r1, about line 12 of b.py:\n| 12: x = 1\n> two\n\n"
        "Remark r5, about line 1 of the original c.py, which you have removed:\n| 1: old\n> gone\n"
    )


@given(st.lists(st.tuples(ANY, ANY, st.binary(max_size=40), ANY), min_size=1, max_size=4))
def test_each_line_is_the_prompts_own_or_has_a_mark(rows: list[tuple[str, str, bytes, str]]) -> None:
    remarks = [
        LocatedRemark(
            f"r{number}",
            ReviewRemark(text, "a/b.py", first=1, suggestion=suggestion, answers=(RemarkAnswer(answer, "agent"),)),
            "here",
            1,
            1,
            (line,),
        )
        for number, (text, suggestion, line, answer) in enumerate(rows)
    ]
    own = [line for line in prompt_of(remarks).split("\n")[2:] if line and line[:2] not in ("> ", "+ ", "< ", "| ")]
    own = [line for line in own if line not in (">", "+", "<", "|")]
    assert own == [f"Remark r{number}, about line 1 of a/b.py:" for number in range(len(rows))]
    assert re.search(f"[{ACTING}]", prompt_of(remarks).replace("\n", "")) is None


@given(ANY, ANY, st.integers(0, 9), st.booleans())
def test_a_remark_is_read_as_it_was_written(text: str, answer: str, first: int, is_settled: bool) -> None:
    remark = ReviewRemark(text, "a\u202eb", first=first, answers=(RemarkAnswer(answer),), settled=is_settled)
    assert parse_remark(format_remark(remark)) == remark
