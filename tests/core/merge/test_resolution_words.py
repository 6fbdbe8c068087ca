"""The words of decisions: each decision has words."""

from __future__ import annotations

from mudroom.core.merge import resolution_words
from mudroom.core.merge.resolution_words import Either, Side, Take, choice_words, take_words
from mudroom.typing import get_args


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
