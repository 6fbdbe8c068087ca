"""The words of decisions: none is forgotten, and the page says the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import mudroom
from mudroom.core.merge import resolution_words
from mudroom.core.merge.resolution_words import Either, Side, Take, choice_words, take_words

PAGE = Path(mudroom.__file__).parent / "web/page"


def table(module: str, name: str) -> dict[str, str]:
    """Of words, in a module of the page."""
    text = (PAGE / module).read_text()
    found = re.search(rf"const {name} = (?:/\*\*.*?\*/ )?\(?{{(.*?)}}", text, re.DOTALL)
    assert found is not None, f"no {name} in {module}"
    return dict(re.findall(r"(\w+): \"(.*?)\"", found[1]))


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


def test_the_page_says_the_same_of_a_file() -> None:
    assert table("conflict.js", "DECIDED") == {take: take_words(take) for take in get_args(Take)}


def test_the_page_says_the_same_of_a_place() -> None:
    sides = resolution_words.SIDES
    assert {key: name[0].lower() + name[1:] for key, name in table("panes.js", "SIDE_NAMES").items()} == {
        side: sides[side] for side in ("ours", "base", "theirs")
    }
    assert {key: name.lower() for key, name in table("panes.js", "TAKE_NAMES").items()} == {
        side: word.removeprefix("the ") for side, word in sides.items()
    }
