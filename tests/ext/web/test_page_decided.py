"""What somebody has decided about a conflict, seen again in a browser, changed, and edited as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import OpenPage, Site, comes, hold, mudroom, staged

from conftest import Place, tick
from mudroom.ext.web.api.region import REGIONS

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]

TEXT = "".join(f"line {number}\n" for number in range(1, 41))
WRITTEN = [
    ("written here", "by"), ("written here", ""), ("written here", "hand"), ("fork's", "only theirs"),
    ("fork's", "theirs too"),
]  # fmt: skip


@pytest.fixture
def conflicting(place: Place, site: Site) -> Site:
    """``f`` conflicts in two places, and the fork has changed a third."""
    place.write("f", TEXT)
    staged(place, "sed -i 's/^line 5$/theirs/; s/^line 20$/only theirs/; s/^line 35$/theirs too/' f")
    tick()
    place.write("f", TEXT.replace("line 5\n", "ours\n").replace("line 35\n", "ours too\n"))
    return site


def opened(site: Site, page: Page) -> Page:
    page.goto(site.address("f", "try-1", "conflicts"))
    page.get_by_role("table", name="The three sides").wait_for()
    return page


def pressed(page: Page, place: int) -> list[str]:
    group = page.get_by_role("group", name=f"What becomes of conflict {place}")
    return group.get_by_role("button", pressed=True).all_inner_texts()


ROWS = "all => all.map(row => ['td.from', 'td.code'].map(css => row.querySelector(css).innerText))"


def result(page: Page) -> list[tuple[str, str]]:
    """Where each line is from, and what it says: all of it as it is at one time."""
    rows = page.get_by_role("table", name="The result").locator("tbody tr:has(td.code)")
    return [(where, text) for where, text in rows.evaluate_all(ROWS)]


def take(page: Page, place: int, side: str) -> None:
    page.get_by_role("group", name=f"What becomes of conflict {place}").get_by_role("button", name=side).click()


def save(page: Page) -> None:
    page.get_by_role("button", name="Save decision").click()
    page.get_by_text("All conflicts are decided.").wait_for()
    page.get_by_text("It is decided; choose again to change that.").wait_for()


def sees_by_hand(page: Page) -> None:
    comes(page, page.get_by_label("Result of conflict 1").input_value, "by\n\nhand\n")
    comes(page, lambda: (pressed(page, 1), pressed(page, 2)), ([], ["Fork's"]))
    comes(page, lambda: [line for line in result(page) if line[0]], WRITTEN)


def test_what_is_decided_is_there_after_a_reload_and_in_another_tab(
    place: Place, conflicting: Site, open_page: OpenPage
) -> None:
    page, other = opened(conflicting, open_page()), opened(conflicting, open_page())
    take(page, 1, "Both")
    page.get_by_label("Result of conflict 1").fill("by\n\nhand\n")
    take(page, 2, "Fork's")
    save(page)
    page.reload()
    for one in (page, other):
        one.get_by_text("It is decided; choose again to change that.").wait_for()
        sees_by_hand(one)

    # and from there on: the other place stays as it was decided
    take(other, 2, "Original")
    other.get_by_text("every place is decided").wait_for()
    other.get_by_role("button", name="Back to the decision").click()
    comes(other, lambda: pressed(other, 2), ["Fork's"])
    other.get_by_label("Result of conflict 1").fill("once more\n")
    save(other)
    page.get_by_role("cell", name="once more", exact=True).wait_for()
    mudroom(place, "apply", "try-1", "--yes")
    expected = TEXT.replace("line 5\n", "once more\n").replace("line 20\n", "only theirs\n")
    assert (place.project / "f").read_text() == expected.replace("line 35\n", "theirs too\n")


def test_what_was_decided_in_a_terminal(place: Place, conflicting: Site, page: Page) -> None:
    mudroom(place, "resolve", "try-1", "f", "--hunk", "1", "--theirs", "--hunk", "2", "--both")
    opened(conflicting, page)
    comes(page, lambda: (pressed(page, 1), pressed(page, 2)), (["Fork's"], ["Both"]))
    mudroom(place, "resolve", "try-1", "f", "--mine")
    page.get_by_text("It is decided, not place by place: the result says how.").wait_for()
    comes(page, lambda: result(page)[4], ("project's", "ours"))
    comes(page, lambda: (pressed(page, 1), pressed(page, 2)), ([], []))


def test_the_whole_result_is_edited(place: Place, conflicting: Site, page: Page) -> None:
    opened(conflicting, page)
    page.get_by_role("button", name="Project's everywhere").click()
    save(page)
    page.get_by_role("button", name="Edit the whole result").click()
    whole = page.get_by_label("The whole result", exact=True)
    before = whole.input_value()
    assert before == (place.project / "f").read_text().replace("line 20\n", "only theirs\n")
    whole.fill("first\n" + before.replace("ours too\n", ""))
    assert page.get_by_role("button", name="Project's everywhere").is_disabled()

    # it is kept while something else is looked at
    page.get_by_role("link", name="Review", exact=True).first.click()
    page.get_by_role("treeitem").first.wait_for()
    page.get_by_role("link", name="Conflicts").first.click()
    page.get_by_role("button", name="Save the whole result").click()
    page.get_by_text("It is decided, not place by place: the result says how.").wait_for()
    comes(page, lambda: result(page)[0], ("", "first"))
    page.reload()
    page.get_by_role("button", name="Edit the whole result").click()
    comes(page, lambda: whole.input_value().startswith("first\nline 1\n"), True)
    mudroom(place, "apply", "try-1", "--yes")
    assert (place.project / "f").read_text() == "first\n" + before.replace("ours too\n", "")


def edited_and_overtaken(place: Place, page: Page, text: str, *, old: str, new: str) -> Locator:
    """The result is edited as a whole, the project changes meanwhile, and what came of that is decided."""
    opened_edit = page.get_by_label("The whole result", exact=True)
    page.get_by_role("button", name="Fork's everywhere").click()
    save(page)
    page.get_by_role("button", name="Edit the whole result").click()
    opened_edit.fill(text)
    tick()
    file = place.project / "f"
    place.write("f", file.read_text().replace(old, new))
    staged(place, "echo > other")  # the page is told of that, and looks again
    page.get_by_text("One side has changed meanwhile").wait_for()
    page.get_by_role("button", name="Look again").click()
    page.get_by_text("The conflict is no longer decided").wait_for()
    page.get_by_role("button", name="Fork's everywhere").click()
    page.get_by_role("button", name="Save decision").click()
    page.get_by_text("The result has changed since you began").wait_for()
    return opened_edit


def test_a_whole_edit_takes_nothing_back_that_has_come_since(place: Place, conflicting: Site, page: Page) -> None:
    opened(conflicting, page)
    begun = TEXT.replace("line 5\n", "theirs\n").replace("line 20\n", "only theirs\n")
    text = "first\n" + begun.replace("line 35\n", "theirs too\n")
    whole = edited_and_overtaken(place, page, text, old="line 12\n", new="line 12, mended\n")
    assert whole.input_value() == text
    assert ("project's", "line 12, mended") in result(page) or ("", "line 12, mended") in result(page)
    page.get_by_role("button", name="Save the whole result").click()
    page.get_by_text("It is decided, not place by place: the result says how.").wait_for()
    some = ("first", "line 12", "line 12, mended")
    comes(page, lambda: [line for _, line in result(page) if line in some], ["first", "line 12, mended"])
    mudroom(place, "apply", "try-1", "--yes")
    assert (place.project / "f").read_text() == text.replace("line 12\n", "line 12, mended\n")


def test_a_whole_edit_that_was_overtaken_is_kept(place: Place, conflicting: Site, page: Page) -> None:
    """What cannot be merged with what has come since is saved only by somebody who says so."""
    opened(conflicting, page)
    whole = edited_and_overtaken(place, page, "precious\n", old="line 40\n", new="line 40\nlater\n")
    page.get_by_role("button", name="Save the whole result").click()
    page.get_by_text("conflicts with changes since, from line 1 of the edit on").wait_for()
    assert whole.input_value() == "precious\n"
    comes(page, lambda: result(page)[-1][1], "later")
    page.get_by_role("button", name="Save mine, drop the other changes").click()
    page.get_by_text("It is decided, not place by place: the result says how.").wait_for()
    mudroom(place, "apply", "try-1", "--yes")
    assert (place.project / "f").read_text() == "precious\n"


def test_an_edit_is_of_no_other_fork_of_that_name(place: Place, conflicting: Site, page: Page) -> None:
    opened(conflicting, page)
    page.get_by_role("button", name="Fork's everywhere").click()
    save(page)
    page.get_by_role("button", name="Edit the whole result").click()
    page.get_by_label("The whole result", exact=True).fill("the old fork's\n")
    page.get_by_role("link", name="Review", exact=True).first.click()
    page.get_by_role("treeitem").first.wait_for()
    hold(page)  # else it may show what a command has not done yet
    mudroom(place, "discard", "try-1")
    place.write("f", TEXT)
    tick()
    staged(place, "sed -i 's/^line 7$/theirs/' f")
    tick()
    place.write("f", TEXT.replace("line 7\n", "ours\n"))
    page.get_by_role("treeitem").first.wait_for()
    page.get_by_role("link", name="Conflicts").first.click()
    page.get_by_text("1 place of 1 not decided").wait_for()
    assert page.get_by_label("The whole result", exact=True).count() == 0
    assert page.get_by_role("button", name="Look again").count() == 0


def test_what_has_too_many_places_is_decided_as_a_whole(place: Place, site: Site, page: Page) -> None:
    text = "".join(f"line {number}\nbetween {number}\n" for number in range(REGIONS))
    place.write("f", text)
    staged(place, "sed -i 's/^line/theirs/' f")
    tick()
    place.write("f", text.replace("line", "ours"))
    page.goto(site.address("f", "try-1", "conflicts"))
    page.get_by_text(f"It conflicts at {REGIONS:,} places, and is too long to be shown place by place").wait_for()
    assert page.get_by_text("mudroom resolve --edit").is_visible()
    page.get_by_role("button", name="Take the fork's").click()
    page.get_by_text("All conflicts are decided.").wait_for()
    mudroom(place, "apply", "try-1", "--yes")
    assert (place.project / "f").read_text() == text.replace("line", "theirs")


def test_unchanged_lines_come_when_they_are_asked_for(conflicting: Site, page: Page) -> None:
    opened(conflicting, page)
    panes = page.get_by_role("table", name="The three sides")
    assert panes.get_by_role("cell", name="line 12", exact=True).count() == 0
    panes.get_by_role("button", name="Show all 8 lines").first.click()
    panes.get_by_role("cell", name="line 12", exact=True).first.wait_for()
    comes(page, panes.get_by_role("cell", name="line 12", exact=True).count, 3)
    take(page, 1, "Fork's")
    comes(page, lambda: ("", "line 12") in result(page), True)


def test_a_secret_that_is_decided_is_not_shown(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo theirs > .env")
    tick()
    place.write(".env", "TOKEN=swordfish\n")
    page.goto(site.address("f", "try-1", "conflicts"))
    page.get_by_role("button", name="Keep the project's").click()
    page.get_by_text("All conflicts are decided.").wait_for()
    page.reload()
    page.get_by_text("It holds secrets").wait_for()
    assert page.get_by_role("button", name="Edit the whole result").count() == 0
    assert "swordfish" not in page.content()
