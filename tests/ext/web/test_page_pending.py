"""What was chosen in the review and not applied: still there after another view, and after a reload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, hold, mudroom, staged

from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]

TEXT = "".join(f"line {number}\n" for number in range(1, 41))
SCRIPT = "sed -i 's/^line 5$/five/; s/^line 35$/last/' a; echo b > b; echo c > c"


@pytest.fixture
def review(place: Place, site: Site, page: Page) -> Page:
    """``b`` is left out, and of ``a`` its second hunk."""
    place.write("a", TEXT)
    staged(place, SCRIPT)
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_role("checkbox", name="Apply hunk 2 of 2").uncheck()
    page.get_by_role("treeitem").filter(has_text="b").get_by_role("checkbox").uncheck()
    page.get_by_role("button", name="Apply 2 of 3").wait_for()
    return page


def chosen(page: Page, count: str) -> None:
    page.get_by_text(f"{count} chosen").wait_for()
    assert not page.get_by_role("checkbox", name="Apply hunk 2 of 2").is_checked()
    assert page.get_by_role("checkbox", name="Apply hunk 1 of 2").is_checked()


def test_after_another_view_and_a_reload(place: Place, review: Page) -> None:
    review.get_by_role("link", name="Watch", exact=True).first.click()
    review.get_by_role("heading", name="Watch try-1").wait_for()
    review.get_by_role("link", name="Review", exact=True).first.click()
    chosen(review, "2 of 3")
    review.reload()
    chosen(review, "2 of 3")
    review.get_by_role("button", name="Apply 2 of 3").click()
    review.get_by_text("Applied: 2 written").wait_for()
    assert (place.project / "a").read_text() == TEXT.replace("line 5\n", "five\n")
    assert not (place.project / "b").exists() and (place.project / "c").exists()

    # what is left is chosen anew, whether somebody goes on or loads the page again
    review.reload()
    review.get_by_role("button", name="Apply all 2").wait_for()


def test_a_file_that_is_another_one_by_then(place: Place, review: Page) -> None:
    review.goto("about:blank")
    staged(place, "echo more >> a; echo d > d")
    review.go_back()
    review.get_by_text("1 of 4 chosen").wait_for()
    assert review.get_by_role("treeitem").filter(has_text="c").get_by_role("checkbox").is_checked()
    review.get_by_text("1 file that you had chosen has changed since, and is not chosen any more: a").wait_for()


def test_another_fork_of_that_name_has_nothing_chosen(place: Place, review: Page) -> None:
    review.goto("about:blank")
    mudroom(place, "discard", "try-1")
    staged(place, SCRIPT)
    review.go_back()
    review.get_by_role("button", name="Apply all 3").wait_for()


HOOK = "echo b > b; mkdir -p .git/hooks; echo ok > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"
OTHER = "1 file that you had chosen has changed since, and is not chosen any more: .git/hooks/pre-commit"


@pytest.fixture
def hook(place: Place, site: Site, page: Page) -> Locator:
    """The box of a hook, which is chosen."""
    place.write(".git/config", "[core]\n")
    staged(place, HOOK)
    page.goto(site.address("f", "try-1", "review"))
    box = page.get_by_role("treeitem").filter(has_text="pre-commit").get_by_role("checkbox")
    box.check()
    page.get_by_role("button", name="Apply all 2").wait_for()
    return box


def test_a_protected_file_that_is_another_one_after_a_reload(place: Place, page: Page, hook: Locator) -> None:
    page.reload()
    page.get_by_role("button", name="Apply all 2").wait_for()
    page.goto("about:blank")
    staged(place, "echo evil > .git/hooks/pre-commit")
    page.go_back()
    page.get_by_text(OTHER).wait_for()
    assert not hook.is_checked()


def test_a_protected_file_that_is_another_one_while_it_is_looked_at(place: Place, page: Page, hook: Locator) -> None:
    staged(place, "echo evil > .git/hooks/pre-commit")
    page.get_by_role("button", name="Reload").click()
    page.get_by_text(OTHER).wait_for()
    assert not hook.is_checked()
    hook.check()
    page.get_by_text(OTHER).wait_for(state="hidden")


def test_another_fork_of_that_name_while_the_page_is_open(place: Place, page: Page, hook: Locator) -> None:
    page.get_by_role("checkbox", name="Apply b", exact=True).first.uncheck()
    page.get_by_role("button", name="Apply 1 of 2").wait_for()
    hold(page)
    mudroom(place, "discard", "try-1")
    staged(place, HOOK.replace("echo ok", "echo evil") + "; echo c > c")
    page.get_by_role("button", name="Reload").click()
    page.get_by_text("2 of 3 chosen").wait_for()
    assert not hook.is_checked()


def test_a_choice_that_is_too_much_to_be_kept(review: Page) -> None:
    """Nothing is chosen then, and not what was left out."""
    marked = "JSON.stringify(JSON.parse(sessionStorage['mudroom.picked']).map(([fork, created]) => [fork, created]))"
    review.goto("about:blank")  # what is chosen is written when the page goes
    review.add_init_script(f"sessionStorage['mudroom.picked'] &&= {marked}")
    review.go_back()
    review.get_by_text("Nothing is chosen: your choices here were too large to be kept.").wait_for()
    review.get_by_text("0 of 3 chosen").wait_for()
    review.get_by_role("treeitem").filter(has_text="c").get_by_role("checkbox").check()
    review.get_by_text("Nothing is chosen").wait_for(state="hidden")
    review.get_by_role("button", name="Apply 1 of 3").wait_for()
