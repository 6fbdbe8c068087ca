"""The prompt that an agent gets: nothing that is quoted in it can be taken for its own words."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.text.invisible_characters import ACTING
from mudroom.ext.remarks.core.prompt import LocatedRemark, prompt_of
from mudroom.ext.remarks.core.value import RemarkAnswer, ReviewRemark, format_remark, parse_remark

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
