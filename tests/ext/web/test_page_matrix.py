"""The matrix of forks in a real browser: by the keyboard, narrow, and when a fork has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, comes, go, mudroom, staged

from conftest import Place
from test_page_accessible import AXE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]
TEXT = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
LONG = "a-fork-whose-name-takes-more-room-than-there-is"
ROWS = """
() => [...document.querySelectorAll(".matrix tbody tr")]
  .map((row) => [...row.children].map((cell) => cell.innerText.replace(/\\s+/g, " ").trim()))
"""


def test_forks_that_conflict(place: Place, site: Site, page: Page) -> None:
    place.write("notes.txt", TEXT)
    for name, word in (("first", "ONE"), ("second", "Two"), (LONG, "uno")):
        staged(place, f"sed -i 's/^one$/{word}/' notes.txt; echo {word} > new.txt", name)
    staged(place, "echo > other.txt", "fourth")
    page.set_viewport_size({"width": 320, "height": 640})
    go(page, site, "project")
    summary = page.locator(".matrix summary")
    summary.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Compare again").wait_for()
    assert page.evaluate(ROWS) == [
        ["first", "clean"],
        ["second", "clean", "2 conflicts"],
        [LONG, "clean", "2 conflicts", "2 conflicts"],
        ["fourth", "clean", "clean", "clean", "clean"],
    ]
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    if AXE.exists():
        assert violations(page) == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Forks together"
    told = page.get_by_role("list", name="Paths in conflict")
    assert told.get_by_role("listitem").first.inner_text() == "first and second: new.txt, notes.txt"
    staged(place, "sed -i 's|^Two$|one|' notes.txt; rm new.txt", "second")
    comes(page, lambda: page.evaluate(ROWS)[1], ["second", "clean", "clean"])
    place.write("notes.txt", TEXT.replace("one", "user"))
    page.get_by_role("button", name="Compare again").click()
    comes(page, lambda: page.evaluate(ROWS)[0], ["first", "1 conflict"])
    told.get_by_role("link", name="first").first.press("Enter")
    page.get_by_role("heading", name="notes.txt").first.wait_for()
    assert page.url.endswith("/f/first/conflicts")


def test_forks_are_verified_in_the_background(place: Place, site: Site, page: Page) -> None:
    place.write("notes.txt", TEXT)
    place.write(".mudroom/policy.yaml", "verify:\n  command: test ! -e bad -o ! -e worse\n")
    mudroom(place, "policy", "trust", "--yes")
    for name, script in (("first", "echo > bad"), ("second", "echo > worse"), ("third", "sed -i s/one/uno/ notes.txt")):
        staged(place, script, name)
    go(page, site, "project")
    page.locator(".matrix summary").click()
    comes(
        page,
        lambda: page.evaluate(ROWS),
        [["first", "passes"], ["second", "passes", "fails"], ["third", "passes", "passes", "passes"]],
    )
    page.get_by_text("Verified with /bin/sh -c 'test ! -e bad -o ! -e worse', since").wait_for()
    assert AXE.exists() is False or violations(page) == []
    staged(place, "echo > more", "second")
    comes(page, lambda: page.evaluate(ROWS)[1], ["second", "clean", "clean"])
    page.get_by_role("button", name="Verify the other 3").click()
    comes(page, lambda: page.evaluate(ROWS)[1], ["second", "passes", "fails"])
