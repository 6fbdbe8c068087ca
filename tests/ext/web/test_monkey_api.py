"""A short walk of two monkeys that ask the API at the same time; ``dev/monkey api`` goes further."""

from __future__ import annotations

import pytest

from conftest import Place
from monkey.api import Api
from monkey.chance import Walk
from monkey.model import Entry, Wish, wrong_after

pytestmark = [pytest.mark.slow]


@pytest.mark.deep
def test_a_walk_at_the_api(place: Place) -> None:
    monkey = Api(place, Walk(6, steps=25))
    monkey.go()
    assert monkey.landed and {200, 202, 400, 404} <= monkey.met.keys(), "it has not come far"


def test_a_directory_that_stays_keeps_what_is_in_it() -> None:
    """The fork has made a file of a directory, in which the project has something else meanwhile: a conflict."""
    directory: Entry = ("directory", 0o755, b"")
    file: Entry = ("file", 0o644, b"1\n")
    wishes = {"d": Wish(directory, file), "d/mine": Wish(file, None), "gone": Wish(file, None)}
    before = {"d": directory, "d/mine": file, "d/other": file, "gone": file}
    stayed = {path: before[path] for path in ("d", "d/mine", "d/other")}
    assert wrong_after(before, stayed, wishes, {}) == []
    assert wrong_after(before, before, wishes, {}) == [
        f"gone: file 0644 {file[2]!r} became file 0644 {file[2]!r}, may be nothing"
    ]
