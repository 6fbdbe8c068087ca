"""Short walks of monkeys at the API and the page; ``dev/monkey`` goes further."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from conftest import Place
from monkey.api import Api
from monkey.chance import Walk
from monkey.model import Entry, Wish, wrong_after
from monkey.page import Known, Page, keys_of_the_page, wrong_request
from mudroom.ext.web.api.endpoint import id_of

pytestmark = pytest.mark.slow


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


@pytest.mark.deep
def test_a_walk_at_the_page(place: Place) -> None:
    walk = Walk(4, steps=45)
    Page(place, walk).go()
    assert any("/apply" in line for line in walk.said), "it has not come far"


@pytest.mark.deep
def test_what_a_monkey_finds_in_a_request() -> None:
    wish = Wish(None, ("file", 0o644, b"1\n"))
    known = Known("", {"a": wish, "b": wish}, {})
    shown = [["a", "true"], ["b", "false"]]

    def wrong(*files: Mapping[str, object]) -> list[str]:
        return wrong_request({"files": list(files)}, shown, known)

    a, b = ({"id": id_of(name)} for name in (b"a", b"b"))
    assert wrong(a) == []
    assert wrong(a, b) == ["b was shown as false, and is asked for"]
    assert wrong() == ["a was shown as true, and is not asked for"]
    assert len(wrong({**a, "blocks": [0]})) == 1
    assert wrong_request({"files": None}, shown, known) == ["b was shown as false, and is asked for"]


@pytest.mark.deep
def test_all_keys_of_the_help_are_known() -> None:
    assert {"?", "j", "ArrowDown", " ", "Escape", "]", "["} <= set(keys_of_the_page())
