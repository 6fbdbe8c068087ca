"""What somebody has chosen in a conflict and not saved: over a reload, and when a side has changed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, mudroom, staged

from conftest import Place, tick

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]

TEXT = "".join(f"line {number}\n" for number in range(1, 41))
OURS = TEXT.replace("line 5\n", "ours\n").replace("line 35\n", "ours too\n")


@pytest.fixture
def view(place: Place, site: Site, page: Page) -> Page:
    """``f`` conflicts in two places."""
    place.write("f", TEXT)
    staged(place, "sed -i 's/^line 5$/theirs/; s/^line 35$/theirs too/' f")
    tick()
    place.write("f", OURS)
    page.goto(site.address("f", "try-1", "conflicts"))
    page.get_by_role("table", name="The three sides").wait_for()
    return page


def group(page: Page, place: int) -> list[str]:
    found = page.get_by_role("group", name=f"What becomes of conflict {place}")
    return found.get_by_role("button", pressed=True).all_inner_texts()


def take(page: Page, place: int, side: str) -> None:
    page.get_by_role("group", name=f"What becomes of conflict {place}").get_by_role("button", name=side).click()


def test_places_are_there_after_a_reload(place: Place, view: Page) -> None:
    take(view, 1, "Both")
    view.get_by_label("Result of conflict 1").fill("by hand\n")
    view.reload()
    view.get_by_text("1 place of 2 not decided").wait_for()
    assert view.get_by_label("Result of conflict 1").input_value() == "by hand\n"
    take(view, 2, "Fork's")
    view.get_by_role("button", name="Save decision").click()
    view.get_by_text("All conflicts are decided.").wait_for()
    mudroom(place, "apply", "try-1", "--yes")
    expected = TEXT.replace("line 5\n", "by hand\n").replace("line 35\n", "theirs too\n")
    assert (place.project / "f").read_text() == expected


def test_a_whole_result_is_there_after_a_reload(view: Page) -> None:
    view.get_by_role("button", name="Fork's everywhere").click()
    view.get_by_role("button", name="Save decision").click()
    view.get_by_role("button", name="Edit the whole result").click()
    whole = view.get_by_label("The whole result", exact=True)
    whole.fill("all anew\n")
    view.reload()
    whole.wait_for()
    assert whole.input_value() == "all anew\n"
    view.get_by_role("button", name="Drop this edit").click()
    view.get_by_role("button", name="Edit the whole result").wait_for()
    view.reload()
    view.get_by_role("button", name="Edit the whole result").wait_for()
    assert whole.count() == 0


def test_when_a_side_has_changed_it_is_told_and_can_be_read(place: Place, view: Page) -> None:
    take(view, 1, "Fork's")
    view.get_by_label("Result of conflict 1").fill("long thought about\n")
    take(view, 2, "Fork's")
    tick()
    place.write("f", OURS.replace("ours\n", "ours, once more\n", 1))
    view.reload()
    view.get_by_text("One side has changed meanwhile. Choices made here are kept where they still fit.").wait_for()
    assert (group(view, 1), group(view, 2)) == ([], ["Fork's"])
    view.get_by_text("Chosen for 1 place as it was before").click()
    assert view.locator(".unfitting pre").inner_text() == "long thought about\n"
    assert view.get_by_role("button", name="Save decision").is_disabled()
    view.get_by_role("button", name="Look again").click()
    view.get_by_role("button", name="Drop this").click()
    view.locator(".unfitting").wait_for(state="detached")
    assert group(view, 2) == ["Fork's"]
