"""The example of the library with attempts, run as its first lines say."""

from __future__ import annotations

import pytest

from conftest import Place
from library_examples import run, wants_words
from rooms import open_room

pytestmark = pytest.mark.slow


def test_the_best_of_three_is_applied(place: Place) -> None:
    place.write("n", "0\n")
    out = run(place, "best_of_n.py", "grep -q 2 n", "echo 1 > n", "false", "echo 2 > n")
    assert "applied t1-3: mudroom undo u1 takes it back" in out
    assert "3: passed: exit 0, judge 0" in out
    assert (place.project / "n").read_text() == "2\n"
    with open_room(place) as room:
        assert room.forks() == []


def test_without_its_words_it_says_how_it_is_run() -> None:
    wants_words("best_of_n.py")
