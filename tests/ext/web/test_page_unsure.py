"""An apply of which the page does not hear what has come of it: nothing is said of it that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, comes, refusing_once, staged

from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.deep, pytest.mark.slow]


@pytest.fixture
def review(place: Place, site: Site, page: Page) -> Page:
    staged(place, "echo new > f")
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_role("button", name="Apply all 1").wait_for()
    return page


def test_a_question_without_an_answer_is_asked_again(place: Place, review: Page) -> None:
    refusing_once(review, "**/jobs/*")
    review.get_by_role("button", name="Apply all 1").click()
    review.get_by_text("Applied: 1 written.").wait_for()
    assert (place.project / "f").read_text() == "new\n"


def test_what_is_not_known_is_said_to_be(place: Place, review: Page) -> None:
    """The answer is lost; what was asked for is done."""

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    review.route("**/apply", lose)
    review.get_by_role("button", name="Apply all 1").click()
    review.get_by_text("It is not known whether anything was applied.").wait_for()
    assert review.get_by_text("Nothing was applied").count() == 0
    comes(review, (place.project / "f").exists, wanted=True)
    review.get_by_role("button", name="Close", exact=True).click()
    review.get_by_role("button", name="Apply all 1").wait_for(state="detached")
