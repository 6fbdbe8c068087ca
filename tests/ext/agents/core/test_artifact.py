"""Which files a card's patterns stand for."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.agents.core.artifact import matcher, pattern_error
from tiers import each

PATHS = ["a", "a.log", "reports", "reports/a", "reports/x/b.log", "d/reports/c", "d/e/f.txt", "d/e.txt"]
TABLE = {
    "*.log": ["a.log", "reports/x/b.log"],
    "a": ["a", "reports/a"],
    "reports": ["reports", "reports/a", "reports/x/b.log", "d/reports/c"],
    "reports/": ["reports", "reports/a", "reports/x/b.log", "d/reports/c"],
    "reports/**": ["reports/a", "reports/x/b.log"],
    "reports/*": ["reports/a", "reports/x/b.log"],
    "**/reports/**": ["reports/a", "reports/x/b.log", "d/reports/c"],
    "**/x": ["reports/x/b.log"],
    "d/**/*.txt": ["d/e/f.txt", "d/e.txt"],
    "d/*.txt": ["d/e.txt"],
    "?": ["a", "reports/a", "reports/x/b.log", "d/reports/c", "d/e/f.txt", "d/e.txt"],
    "d/?": ["d/e/f.txt"],
    "**": PATHS,
    "*": PATHS,
    "none/**": [],
}


@each("pattern", TABLE)
def test_what_a_pattern_stands_for(pattern: str) -> None:
    assert pattern_error(pattern) == ""
    assert [path for path in PATHS if matcher([pattern])(path.encode())] == TABLE[pattern]


def test_names_that_are_not_text() -> None:
    assert matcher(["r/*.log"])(b"r/\xff\n.log")
    assert matcher(["r/é"])("r/é".encode())
    assert not matcher(["r/?.log"])(b"r/\xff")


@each("pattern", ["", "/a", "../a", "a/../b", "a//b", "./a", "~/a", "!a", "a\nb", "x" * 257])
def test_what_is_no_pattern(pattern: str) -> None:
    assert pattern_error(pattern)


@given(st.lists(st.sampled_from(["a", "b", "*", "**", "?", "a*"]), min_size=1, max_size=5), st.text("ab/", max_size=12))
def test_a_pattern_stands_for_all_that_is_below(pattern: list[str], path: str) -> None:
    """What stands for a directory stands for what is in it; and stars never stand for less than nothing."""
    parts = [part.encode() for part in path.split("/") if part] or [b"a"]
    text = "/".join(pattern)
    if matcher([text])(b"/".join(parts)):
        assert matcher([text])(b"/".join([*parts, b"below"]))
    assert matcher(["**"])(b"/".join(parts))


def test_a_pattern_that_was_made_to_take_long() -> None:
    """Backtracking would need more than the age of the universe."""
    began = time.process_time()
    assert not matcher(["*a" * 60 + "b/**/" + "*a" * 60 + "b"])(b"a" * 255 + b"/" + b"a" * 255)
    assert not matcher(["/".join(["**", "a"] * 40) + "/b"])(b"/".join([b"a"] * 1000))
    assert time.process_time() - began < 5
