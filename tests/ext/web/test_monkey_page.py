"""A short walk of a monkey at the page; ``dev/monkey page`` goes further."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from conftest import Place
from monkey.chance import Walk
from monkey.model import Wish
from monkey.page import Known, Page, keys_of_the_page, wrong_request
from mudroom.ext.web.api.endpoint import id_of

pytestmark = [pytest.mark.deep, pytest.mark.slow]


def test_a_walk_at_the_page(place: Place) -> None:
    walk = Walk(4, steps=45)
    Page(place, walk).go()
    assert any("/apply" in line for line in walk.said), "it has not come far"


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


def test_all_keys_of_the_help_are_known() -> None:
    assert {"?", "j", "ArrowDown", " ", "Escape", "]", "["} <= set(keys_of_the_page())
