"""Many windows of one browser, which opens no more than six connections to a host (HTTP/1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browser import HOME, PATIENCE, Site, staged, watch
from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.anybody, pytest.mark.slow]


def test_eight_windows_of_one_browser(place: Place, site: Site, page: Page) -> None:
    """All of them are let in, and all of them are told; those that stay are told, too, when the first has gone."""
    wrong: list[str] = []
    pages = [page]
    for _number in range(7):
        another = page.context.new_page()
        another.set_default_timeout(PATIENCE)
        watch(another, site.url, wrong)
        another.goto(site.url)
        another.wait_for_selector(HOME)
        pages.append(another)
    staged(place, "echo 1 > a.txt")
    for each in pages:
        each.get_by_role("link", name=str(place.project)).wait_for()
    page.close()
    staged(place, "echo 2 > b.txt", "try-2")
    for each in pages[1:]:
        each.get_by_text("2 forks").wait_for()
    assert wrong == []
