"""The page in a real browser: the first view, and a change that a real command has staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from browser import Site, staged
from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_what_a_command_has_staged_is_there(place: Place, site: Site, page: Page) -> None:
    place.write("a.py", "x = 1\n")
    staged(place, "echo 'y = 2' >> a.py; echo new > '<b>b.txt'")
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_text("<b>b.txt").first.wait_for()
    assert page.get_by_text("a.py").first.is_visible()
    assert page.locator("main b").count() == 0
