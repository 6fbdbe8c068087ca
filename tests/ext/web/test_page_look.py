"""The review of a fork in which a command runs: a look, which cannot be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, mudroom

from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.mark.deep
@pytest.mark.usefixtures("own_site")
def test_a_look_cannot_be_applied_until_it_is_a_review(place: Place, site: Site, page: Page) -> None:
    place.write("a.txt", "one\n")
    mudroom(place, "exec", "--fork", "dev", "--", "sh", "-c", "echo two >> a.txt")
    mudroom(place, "exec", "--fork", "dev", "--background", "--", "sleep", "300")
    page.goto(f"{site.url}#/p/{site.project}/f/dev")
    banner = page.get_by_text("is running (sleep 300): this is a look, not a review")
    banner.wait_for()
    apply = page.get_by_role("button", name="Apply")
    apply.wait_for()
    assert apply.is_disabled()
    mudroom(place, "ps", "--end", "--all")
    page.reload()
    apply.wait_for()
    page.wait_for_function("() => !document.body.innerText.includes('this is a look')")
    assert apply.is_enabled()
    apply.click()
    page.get_by_text("1 written").wait_for()
    assert (place.project / "a.txt").read_text() == "one\ntwo\n"
