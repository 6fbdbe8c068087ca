"""A fork with more changes than the first answer holds: what is drawn of them, and how often it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, refusing_once, staged

from conftest import Place
from mudroom.ext.web.api.review import FEW, MOST

pytestmark = pytest.mark.deep

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

MANY = 2 * FEW + 1_500
"""More than are sifted letter by letter (``CALM`` of review.js)."""
DRAWN = 100
"""Lines, at most, in a window of 800 pixels."""


def test_all_of_many_changes_are_there_after_two_answers(place: Place, site: Site, page: Page) -> None:
    staged(place, f"mkdir d && cd d && seq -f %05g {MANY} | xargs touch")
    asked: list[str] = []

    def note(request: Request) -> None:
        if "/changes?" in request.url:
            asked.append(request.url.partition("/changes")[2])

    page.on("request", note)
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_text(f"{MANY:,} of {MANY:,} chosen").wait_for()
    assert asked == [f"?first={FEW}&count={MOST}"]
    lines, last = page.get_by_role("treeitem"), page.get_by_role("treeitem", name=f"{MANY:05}")
    assert 10 < lines.count() < DRAWN
    page.get_by_label("Filter files").press_sequentially(f"d/{MANY:05}")
    page.get_by_text("1 listed").wait_for()
    last.wait_for()
    page.get_by_label("Filter files").fill("")
    page.get_by_text("1 listed").wait_for(state="detached")
    page.get_by_role("tree").evaluate("list => { list.scrollTop = list.scrollHeight; }")
    last.wait_for()
    assert 10 < lines.count() < DRAWN


def test_a_file_that_is_not_loaded_yet_is_not_taken_for_another(place: Place, site: Site, page: Page) -> None:
    staged(place, f"seq -f %05g {FEW + 10} | xargs touch; echo late > {FEW + 10:05}")
    (row,) = site.get(f"/projects/{site.project}/forks/try-1/changes?first={FEW + 9}")["rows"]
    asked: list[str] = []

    def note(request: Request) -> None:
        if "/diff?" in request.url:
            asked.append(request.url)

    page.on("request", note)
    page.goto(site.address("f", "try-1", "review", row["id"]))
    page.get_by_text("late", exact=True).first.wait_for()
    assert all(f"file={row['id']}" in one for one in asked), asked


def test_rows_that_were_not_answered_are_asked_for_again(place: Place, site: Site, page: Page) -> None:
    staged(place, f"seq -f %05g {FEW + 10} | xargs touch")
    asked = refusing_once(page, "**/changes?first=*")
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_text(f"{FEW:,} loaded").wait_for()
    page.get_by_text(f"{FEW:,} of {FEW + 10:,} chosen").wait_for()
    page.get_by_text(f"{FEW + 10:,} of {FEW + 10:,} chosen").wait_for()
    assert len(asked) == 2
