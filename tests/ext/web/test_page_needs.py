"""The first view: what needs the user first, then what runs, then the projects; by mouse, keys and screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, mudroom, staged

from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.mark.deep
@pytest.mark.usefixtures("own_site")
def test_what_needs_the_user_stands_first(place: Place, site: Site, page: Page) -> None:
    place.write("a.txt", "one\n")
    mudroom(place, "vault", "init")
    page.goto(site.url)
    page.get_by_text("Nothing waits for you").wait_for()
    staged(place, "echo two >> a.txt; echo n > new.txt", "done")
    staged(place, "echo theirs > a.txt", "clash")
    place.write("a.txt", "ours, and longer\n")
    page.goto("about:blank")
    page.goto(site.url)
    needs = page.get_by_role("region", name="Needs you")
    rows = needs.get_by_role("listitem")
    rows.nth(1).wait_for()
    texts = rows.all_inner_texts()
    assert ["conflict" in texts[0], "in conflict with the project" in texts[0]] == [True, True], texts
    row, tag = (rows.nth(0).bounding_box(), rows.nth(0).get_by_text("conflict", exact=True).bounding_box())
    assert row and tag and tag["x"] - row["x"] >= 8 and tag["y"] > row["y"] + 2, "text does not touch the frame"
    heading = page.get_by_role("heading", name="All projects").bounding_box()
    assert heading and heading["height"] > 10, "it is there for the eye, too"
    headings = page.get_by_role("heading").all_inner_texts()
    assert headings.index("Needs you") < headings.index("All projects")
    link = needs.get_by_role("link", name="Decide").first
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/conflicts")


@pytest.mark.deep
@pytest.mark.usefixtures("own_site")
def test_what_runs_says_its_level_and_what_it_costs(place: Place, site: Site, page: Page) -> None:
    place.write("a.txt", "one\n")
    mudroom(place, "exec", "--fork", "dev", "--agent", "coder", "--background", "--", "sleep", "300")
    try:
        page.goto(site.url)
        running = page.get_by_role("region", name="Running")
        running.get_by_text("sleep 300").wait_for()
        running.get_by_text("s CPU").wait_for()
        assert running.get_by_text("level 1").count() == 1
        assert running.get_by_role("link", name="Watch dev").count() == 1
    finally:
        mudroom(place, "ps", "--end", "--all")
