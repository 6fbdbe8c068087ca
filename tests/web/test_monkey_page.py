"""A short walk of a monkey at the page; ``dev/monkey page`` goes further."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra web")

from conftest import Place
from monkey.chance import Walk
from monkey.page import Page, keys_of_the_page

pytestmark = [pytest.mark.slow, pytest.mark.anybody]


def test_a_walk_at_the_page(place: Place) -> None:
    walk = Walk(1, steps=60)
    Page(place, walk).go()
    assert any("/apply" in line for line in walk.said), "it has not come far"


def test_all_keys_of_the_help_are_known() -> None:
    assert {"?", "j", "ArrowDown", " ", "Escape", "]", "["} <= set(keys_of_the_page())
