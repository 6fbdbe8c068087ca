"""What was observed at a hunk, in a real browser: asked for by a button or a key, never before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from browser import Site, comes, mudroom, staged

from conftest import Place
from test_page_story import choose_file, review

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
CODE = "".join(f"x_{number} = {number}\n" for number in range(1, 41))


def test_a_hunk_says_its_command_on_request_and_hides_it_again(place: Place, site: Site, page: Page) -> None:
    place.write("code.py", CODE)
    staged(place, "sed -i 's/^x_3 = 3$/x_3 = None/' code.py")
    mudroom(place, "checkpoint", "try-1")
    mudroom(place, "exec", "--fork", "try-1", "--", "sed", "-i", "s/^x_30 = 30$/<b>x/", "code.py")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/observed" in request.url else None)
    review(page, site)
    choose_file(page, "code.py")
    buttons = page.get_by_role("button", name="Observed")
    comes(page, buttons.count, 2)
    assert asked == [], "never computed for the list"
    buttons.nth(1).click()
    told = page.locator(".observed")
    told.wait_for()
    assert (
        told.locator("p")
        .first.inner_text()
        .startswith("observed: changed by command 2 of 2 (`sed -i 's/^x_30 = 30$/<b>x/' code.py`), ")
    )
    assert buttons.nth(1).get_attribute("aria-expanded") == "true" and len(asked) == 1
    page.keyboard.press("Escape")
    page.locator("section[data-hunk='0']").focus()
    page.keyboard.press("y")
    comes(page, told.count, 2)
    assert "command 1 of 2" in told.first.inner_text()
    page.keyboard.press("y")
    comes(page, told.count, 1)
    report = json.loads(mudroom(place, "diff", "try-1", "--why", "code.py", "--json"))
    assert report["hunks"][1]["text"][0] == told.locator("p").first.inner_text(), "the same words as in the terminal"
