"""A file that was moved and changed in one go, as a user sees it in a browser."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from browser import Site, staged

from conftest import Place
from test_page_accessible import AXE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]

TEXT = "".join(f"line_{number} = {number}\n" for number in range(1, 61))
ONLY_NEW = "Only the new file is chosen: the old one stays in the project, too."
ONLY_OLD = "Only the deletion of the old file is chosen: the new one stays in the fork."


@pytest.fixture
def moved(place: Place, site: Site) -> Site:
    place.write("src/old.py", TEXT)
    place.write("src/other.py", TEXT.replace("line", "other"))
    staged(place, "mkdir lib; mv src/old.py lib/new.py; sed -i 's/^line_30 = 30$/line_30 = \"thirty\"/' lib/new.py")
    return site


def review(site: Site, name: str) -> str:
    found: str = site.address("f", "try-1", "review", base64.urlsafe_b64encode(name.encode()).decode().rstrip("="))
    return found


def line(page: Page) -> Locator:
    return page.get_by_role("group", name="Moved and changed")


def codes(page: Page, kind: str) -> list[str]:
    found: list[str] = page.locator(f"tr.{kind} td.code").all_inner_texts()
    return found


def test_what_was_changed_in_it_is_seen_or_all_of_it(moved: Site, page: Page) -> None:
    page.goto(review(moved, "lib/new.py"))
    line(page).get_by_text("Moved from src/old.py, 97 % the same.").wait_for()
    # the old side is coloured: its lines are those of the old file
    page.locator("tr.removed td.code .t-literal").first.wait_for()
    assert (codes(page, "removed"), codes(page, "added")) == (["line_30 = 30"], ['line_30 = "thirty"'])
    assert page.get_by_role("checkbox", name="Apply hunk").count() == 0, "it is chosen as a whole"
    page.get_by_role("button", name="Show all 26 lines").click()
    page.get_by_role("cell", name="line_10 = 10", exact=True).wait_for()

    as_new = line(page).get_by_role("button", name="As a new file")
    as_new.focus()
    page.keyboard.press("Enter")
    page.get_by_text("New: a file, mode 0644.").wait_for()
    assert as_new.get_attribute("aria-pressed") == "true"
    assert as_new.evaluate("one => one === document.activeElement"), "the keyboard stays where it was"
    page.get_by_role("checkbox", name="Apply hunk 1 of 1").wait_for()
    assert (codes(page, "removed"), len(codes(page, "added"))) == ([], 60)
    line(page).get_by_role("button", name="Changes").click()
    page.locator("tr.removed").wait_for()


def test_from_one_end_to_the_other_and_half_of_it_is_said(moved: Site, page: Page) -> None:
    page.goto(review(moved, "src/old.py"))
    line(page).get_by_text("Moved to lib/new.py, 97 % the same.").wait_for()
    assert line(page).get_by_role("button").count() == 0, "a file that went is shown as that"
    assert line(page).locator("strong").count() == 0, "both are chosen"
    page.keyboard.press("x")
    line(page).get_by_text(ONLY_NEW).wait_for()
    line(page).get_by_role("link", name="lib/new.py").click()
    line(page).get_by_text("Moved from src/old.py").wait_for()
    line(page).get_by_text(ONLY_NEW).wait_for()
    page.keyboard.press("x")
    line(page).locator("strong").wait_for(state="detached")
    line(page).get_by_role("link", name="src/old.py").click()
    page.keyboard.press("x")
    line(page).get_by_text(ONLY_OLD).wait_for()


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm install --prefix dev/page)")
def test_nothing_grave(moved: Site, page: Page) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(review(moved, "lib/new.py"))
    line(page).wait_for()
    page.keyboard.press("x")
    line(page).get_by_text(ONLY_OLD).wait_for()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is beside the window"
