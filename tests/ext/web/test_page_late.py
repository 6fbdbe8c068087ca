"""Answers that come late or not at all, and a user who is quicker: what was chosen stays, and what is shown is so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, comes, mudroom, refusing_once, staged

from conftest import Place, tick
from mudroom.ext.web.api.review import FEW
from test_decide_page import HOST, card, queue

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from mudroom.vault.approvals.queue import Queue

__all__ = ["queue"]  # fixtures

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


AT_ONCE = """([css, act]) => {
  const acts = {
    key: (one) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true })),
    focus: (one) => one.focus(),
    later: (one) => one.closest("aside").querySelector("header button").click(),
  };
  let done = false;
  new MutationObserver(() => {
    const one = document.querySelector(css);
    if (!one || done) return;
    done = true;
    acts[act](one);
  }).observe(document.body, { childList: true, subtree: true, attributes: true });
}"""
"""Does it when that is there, before anything is drawn: a MutationObserver is called by a microtask (DOM, 4.3)."""

DRAWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true), 200)))"
"""And what is done after that has been done, too."""


def test_a_key_counts_as_soon_as_its_list_is_there(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo 1 > a; echo 1 > b")
    page.evaluate(AT_ONCE, ["[role=treeitem]", "key"])
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_role("heading", level=2, name="b", exact=True).wait_for()


def test_the_keyboard_stays_where_somebody_has_put_it(place: Place, site: Site, page: Page) -> None:
    """A new view has the keyboard at once, or not at all."""
    page.evaluate(AT_ONCE, ["[href='#/']:not([aria-current])", "focus"])
    page.goto(site.url + "#/new")
    page.get_by_role("heading", name="New session").wait_for()
    page.wait_for_function(DRAWN)
    assert page.evaluate("document.activeElement.className") == "brand"


def test_what_is_put_off_as_soon_as_it_is_there_stays_so(queue: Queue, page: Page) -> None:
    page.evaluate(AT_ONCE, ["#decide:not([hidden]) .ask", "later"])
    with queue.put(HOST, 60):
        card(page, HOST.fingerprint).wait_for(state="attached")
        page.wait_for_function(DRAWN)
        assert page.locator("#decide").is_hidden()


def test_the_keyboard_is_not_left_with_what_is_out_of_use(site: Site, page: Page) -> None:
    """Though nothing else changes: a browser takes it away after the frame in which a page could look (HTML, 6.6.4)."""
    page.evaluate("() => { const one = document.querySelector('header .asked'); one.focus(); one.disabled = true; }")
    page.wait_for_function("() => document.activeElement.matches('body :not(:disabled)')")
