"""A review looked at again while nothing in it is another: what comes is shown, and what comes later is told first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, mudroom, staged

from conftest import Place, tick
from mudroom.ext.web.api.review import FEW

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]


def test_after_an_apply_that_changed_nothing_the_files_are_there_again(place: Place, site: Site, page: Page) -> None:
    place.write("f", "one\n")
    staged(place, "echo theirs > f")
    tick()
    place.write("f", "ours\n")
    page.goto(site.address("f", "try-1", "review"))
    for _twice in range(2):
        page.get_by_role("button", name="Apply 0 of 1").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply", exact=True).click()
        page.get_by_text("1 conflict left").wait_for()
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("1 of 1 chosen").wait_for()
    assert (place.project / "f").read_text() == "ours\n"


@pytest.mark.parametrize("many", [1, 40])
def test_after_a_failed_apply_what_comes_is_told_before_it_is_shown(
    place: Place, site: Site, page: Page, many: int
) -> None:
    """``many``: an answer that is known again by a tag of its own (``TAGGED``), too."""
    place.write(".mudroom/policy.yaml", "verify:\n  command: [sh, -c, 'exit 3']\n  when: always\n")
    staged(place, f"seq -f f%02g {many} | xargs touch")
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_role("button", name=f"Apply all {many}").click()
    page.get_by_text("Nothing was applied").wait_for()
    page.get_by_role("button", name="Close", exact=True).click()
    page.get_by_text(f"{many} of {many} chosen").wait_for()
    staged(place, "echo more > more")
    page.get_by_text("This fork has changed since you looked: 1 more file.").wait_for()
    page.get_by_text(f"{many} of {many} chosen").wait_for()
    page.get_by_role("button", name="Reload").click()
    page.get_by_text(f"{many + 1} of {many + 1} chosen").wait_for()


def test_what_comes_to_an_empty_fork_is_chosen_at_first(place: Place, site: Site, page: Page) -> None:
    mudroom(place, "fork", "new", "try-1")
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_text("0 of 0 chosen").wait_for()
    staged(place, "echo x > f; echo y > g")
    page.get_by_role("button", name="Reload").click()
    page.get_by_text("2 of 2 chosen").wait_for()


def test_rows_that_are_here_stay_when_it_is_looked_at_again(place: Place, site: Site, page: Page) -> None:
    place.write(".mudroom/policy.yaml", "verify:\n  command: [sh, -c, 'exit 3']\n  when: always\n")
    staged(place, f"seq -f f%05g {FEW + 10} | xargs touch")
    page.goto(site.address("f", "try-1", "review"))
    chosen = page.get_by_text(f"{FEW + 10:,} of {FEW + 10:,} chosen")
    chosen.wait_for()
    page.get_by_role("button", name=f"Apply all {FEW + 10:,}").click()
    page.get_by_text("Nothing was applied").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/changes" in request.url else None)
    with page.expect_response("**/changes"):
        page.get_by_role("button", name="Close", exact=True).click()
    chosen.wait_for()
    assert not [url for url in asked if "first=" in url]
