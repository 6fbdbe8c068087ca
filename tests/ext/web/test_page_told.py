"""What the page tells before and after an apply, of what is decided, and where nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, mudroom, staged, usable

from conftest import Place, tick

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]

TEXT = "".join(f"line {number}\n" for number in range(1, 41))


def review(page: Page, site: Site) -> None:
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_role("tree", name="Changed files").wait_for()


def apply(page: Page, button: str = "Apply all 1") -> None:
    page.get_by_role("button", name=button, exact=True).click()
    page.get_by_text("Applied:").wait_for()


def holder(page: Page, name: str) -> None:
    """Wait until it has the keyboard."""
    page.wait_for_function("(name) => document.activeElement.innerText?.trim() === name", arg=name)


@pytest.fixture
def decided(place: Place, site: Site) -> Site:
    """A file of which the fork's is taken, one that is deleted, one that is merged, and one that goes together."""
    for name in ("image", "gone", "text"):
        place.write(name, TEXT)
    place.write("both", TEXT)
    script = "printf 'x\\0y' > image; rm gone; sed -i 's/^line 5$/theirs/' text; sed -i 's/^line 5$/theirs/' both"
    staged(place, script)
    tick()
    place.write("image", "mine\0mine")
    place.write("gone", TEXT + "more\n")
    place.write("text", TEXT.replace("line 5\n", "ours\n"))
    place.write("both", TEXT.replace("line 35\n", "ours\n"))
    for name in ("image", "gone"):
        mudroom(place, "resolve", "try-1", name, "--theirs")
    mudroom(place, "resolve", "try-1", "text", "--both")
    return site


def test_what_is_lost_is_not_called_merged(place: Place, decided: Site, page: Page) -> None:
    review(page, decided)
    banner = page.locator(".notices .banner", has_text="changed in the project meanwhile")
    banner.get_by_text("3 decided, 2 of them overwrite changes of the project; the rest is merged").wait_for()
    page.get_by_role("button", name="Apply all 4").click()
    told = page.get_by_role("dialog").locator(".warnings > div")
    told.first.wait_for()
    found = dict(one.inner_text().split("\n") for one in told.all())
    assert found == {
        "Overwrites changes of the project, as decided": "image",
        "Deletes changes of the project, as decided": "gone",
        "Changed in the project meanwhile: merged": "both, text",
    }
    page.get_by_role("dialog").get_by_role("button", name="Apply", exact=True).click()
    page.get_by_text("Applied:").wait_for()
    assert not (place.project / "gone").exists()
    assert (place.project / "both").read_text() == TEXT.replace("line 5\n", "theirs\n").replace("line 35\n", "ours\n")


def test_what_is_decided_is_a_whole(decided: Site, page: Page) -> None:
    review(page, decided)
    row = page.get_by_role("treeitem").filter(has_text="text")
    assert row.get_by_text("decided").get_attribute("title") == "decided: merged"
    assert page.get_by_role("treeitem").filter(has_text="both").get_by_text("decided").count() == 0
    row.locator(".name").click()
    page.get_by_role("heading", level=2, name="text").wait_for()
    page.locator("section.hunk").first.wait_for()
    assert page.get_by_role("checkbox", name="Apply hunk").count() == 0
    page.locator(".file-body").get_by_role("link", name="Conflicts").click()
    page.get_by_role("heading", name="Conflicts").wait_for()


def test_where_nothing_is_left(place: Place, site: Site, page: Page) -> None:
    """No refusal beside the success; undone and done again; and a way on from a fork that changes nothing."""
    place.write("f", "one\n")
    staged(place, "echo two > f")
    review(page, site)
    page.locator("section.hunk").wait_for()
    with page.expect_response("**/changes"):
        apply(page)
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Applied, and taken back.").wait_for()
    assert (place.project / "f").read_text() == "one\n"
    holder(page, "Redo")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo").wait_for()
    assert (place.project / "f").read_text() == "two\n"
    assert page.locator(".problem").count() == 0
    page.reload()
    page.get_by_text("This fork changes nothing any more: what it changed was applied.").wait_for()
    assert page.get_by_role("button", name="Apply").count() == 0
    page.locator(".file").get_by_role("button", name="Undo").click()
    page.get_by_text("This fork changes nothing any more: what it changed was applied as u1 and undone.").wait_for()
    holder(page, "Redo")
    page.locator(".file").get_by_role("link", name="To the project").click()
    page.get_by_role("heading", name="Forks").wait_for()


def test_the_page_says_why_a_fork_is_empty_on_a_phone_too(place: Place, site: Site, page: Page) -> None:
    place.write("f", "one\n")
    staged(place, "echo two > f")
    mudroom(place, "apply", "try-1", "--yes")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_text("This fork changes nothing any more: what it changed was applied.").wait_for()


def test_what_an_undo_left_is_decided(place: Place, site: Site, page: Page) -> None:
    place.write("f", "one\n")
    staged(place, "echo two > f")
    mudroom(place, "apply", "try-1", "--yes")
    tick()
    place.write("f", "mine\n")
    page.goto(site.address())
    page.get_by_role("button", name="Undo u1").click()
    page.locator(".toast").get_by_role("button", name="Decide").click()
    page.get_by_role("heading", name="Conflicts").wait_for()
    page.go_back()
    page.get_by_role("button", name="Decide what the undo of u1 left").click()
    page.get_by_role("heading", name="Conflicts").wait_for()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_last_button_of_a_row_is_at_its_end(place: Place, site: Site, page: Page, width: int) -> None:
    """One place for buttons: the end of a card, of the bar, of a decision."""
    place.write("f", TEXT)
    staged(place, "sed -i 's/^line 5$/theirs/' f")
    tick()
    place.write("f", TEXT.replace("line 5\n", "ours\n"))
    page.set_viewport_size({"width": width, "height": 800})
    for view, selector in (((), ".card.fork .primary"), (("f", "try-1", "review"), ".bar .primary"),
                           (("f", "try-1", "conflicts"), ".save .primary")):  # fmt: skip
        page.goto(site.address(*view))
        button = page.locator(selector)
        button.wait_for()
        gap = button.evaluate(
            "(b) => b.closest('.card, .bar, .save').getBoundingClientRect().right - b.getBoundingClientRect().right"
        )
        assert 0 <= gap < 20, (view, gap)


def test_the_keyboard_when_what_it_was_at_stays_out_of_use(place: Place, site: Site, page: Page) -> None:
    place.write("f", TEXT)
    staged(place, "sed -i 's/^line 5$/theirs/' f")
    tick()
    place.write("f", TEXT.replace("line 5\n", "ours\n"))
    page.goto(site.address("f", "try-1", "conflicts"))
    page.get_by_role("button", name="Fork's everywhere").click()
    usable(page.get_by_role("button", name="Save decision")).press("Enter")
    page.get_by_text("All conflicts are decided.").wait_for()
    page.wait_for_function("() => document.activeElement.matches('.save')")
    page.get_by_role("button", name="Edit the whole result").click()
    page.get_by_role("textbox", name="The whole result").wait_for()
    page.wait_for_function("() => document.activeElement.matches('.whole-edit textarea')")
