"""Remarks in a real browser: at a line, with a suggestion, sent to an agent, and a second look at what is new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import Site, comes, mudroom, staged

from conftest import Place
from test_page_story import choose_file, review

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
CODE = "".join(f"x_{number} = {number}\n" for number in range(1, 41))


def prepare(place: Place) -> None:
    place.write("code.py", CODE)
    place.write("gone.txt", "one\ntwo\n")
    staged(
        place,
        "sed -i -e 's/^x_3 = 3$/x_3 = None/' -e 's/^x_30 = 30$/x_30 = 31/' code.py; rm gone.txt; echo n > new.txt",
    )


def rows(place: Place) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json.loads(mudroom(place, "comment", "try-1", "--json"))["remarks"]}


def test_a_remark_a_suggestion_a_round_and_the_second_look(place: Place, site: Site, page: Page) -> None:
    prepare(place)
    review(page, site)
    choose_file(page, "code.py")
    page.get_by_role("button", name="Write a remark about line 3", exact=True).click()
    page.get_by_role("textbox", name="Remark about line 3", exact=True).fill("why None?\nsay it")
    page.get_by_role("button", name="Suggest lines").click()
    field = page.get_by_role("textbox", name="Lines instead of line 3")
    comes(page, field.input_value, "x_3 = None")
    field.fill("x_3 = 0")
    page.get_by_role("button", name="Add the remark").click()
    thread = page.get_by_role("region", name="Remark r1: not sent")
    thread.first.wait_for()
    assert rows(place)["r1"]["text"] == "why None?\nsay it"

    page.locator("details.remarks > summary").click()
    page.get_by_role("button", name="Remark about the whole").click()
    page.get_by_role("textbox", name="Remark about the whole").fill("add a test")
    page.get_by_role("button", name="Add the remark").click()
    page.get_by_text("2 open remarks, 2 not sent").wait_for()
    page.get_by_role("button", name="Remark about code.py").click()
    page.get_by_role("textbox", name="Remark about code.py").fill("split it")
    page.get_by_role("button", name="Add the remark").click()
    page.get_by_text("3 open remarks, 3 not sent").wait_for()

    page.get_by_role("button", name="Send 3 remarks").click()
    prompt = page.get_by_label("What is sent")
    prompt.wait_for()
    assert "| 3: x_3 = None\n> why None?\n> say it\n+ x_3 = 0\n" in prompt.inner_text()
    page.get_by_text("try-1 has no conversation to go on").wait_for()
    page.get_by_role("button", name="Leave them for the agent's look").click()
    page.get_by_text("round 1 waits for the agent's look").wait_for()
    page.get_by_role("region", name="Remark r2: waits for the agent's look").wait_for()

    staged(place, "sed -i 's/^x_3 = None/x_3 = 4/' code.py; echo m > more.txt")
    page.reload()  # the page may ask for that during the command, too
    page.locator("details.remarks > summary").click()
    page.get_by_role("region", name="Remark r1: waits for the agent's look; the lines have changed").first.wait_for()
    page.get_by_role("checkbox", name="Only what is new since round 1").check()
    page.get_by_role("treeitem").filter(has_text="more.txt").wait_for()
    assert page.get_by_role("treeitem").filter(has_text="new.txt").count() == 0
    choose_file(page, "code.py")
    page.locator("tr.removed").filter(has_text="x_3 = None").wait_for()
    page.locator("tr.added").filter(has_text="x_3 = 4").wait_for()
    assert page.get_by_text("x_30 = 31").count() == 0
    assert (place.project / "code.py").read_text() == CODE


def test_a_suggestion_is_taken_answered_and_settled_by_keys_alone(place: Place, site: Site, page: Page) -> None:
    prepare(place)
    mudroom(place, "comment", "try-1", "code.py:30", "wrong", "--suggest", "x_30 = 30")
    review(page, site)
    choose_file(page, "code.py")
    page.keyboard.press("n")
    page.keyboard.press("n")
    page.locator("section.hunk:focus").wait_for()
    page.keyboard.press("c")
    page.locator("textarea:focus").wait_for()
    page.keyboard.type("by keys")
    page.keyboard.press("Control+Enter")
    page.get_by_role("region", name="Remark r2: not sent").first.wait_for()
    thread = page.locator("tr.thread-row").get_by_role("region", name="Remark r1: not sent")
    thread.get_by_role("button", name="Answer r1").focus()
    page.keyboard.press("Enter")
    page.locator("textarea:focus").wait_for()
    page.keyboard.type("really")
    page.keyboard.press("Control+Enter")
    comes(page, lambda: [answer["text"] for answer in rows(place)["r1"]["answers"]], ["really"])  # type: ignore[attr-defined]
    thread.get_by_role("button", name="Put it into the fork r1").focus()
    page.keyboard.press("Enter")
    comes(page, lambda: rows(place)["r1"]["settled"], True)
    assert "x_30 = 30\n" in mudroom(place, "exec", "--fork", "try-1", "--", "cat", "code.py")


def test_a_damaged_remark_is_told_and_hostile_text_is_shown_as_text(place: Place, site: Site, page: Page) -> None:
    prepare(place)
    mudroom(
        place,
        "comment",
        "try-1",
        "code.py:3",
        "<img src=x onerror=alert(1)> a\u202eb \x1b[2J",
        "--suggest",
        "<b>\u2066",
    )
    (folder,) = Path(place.state).glob("vaults/*/forks/try-1/remarks")
    (folder / "bad.json").write_text("{")
    review(page, site)
    choose_file(page, "code.py")
    page.locator("details.remarks > summary").click()
    page.get_by_text("bad.json is not read").wait_for()
    text = page.locator(".thread .said").first
    text.wait_for()
    assert "<img src=x onerror=alert(1)>" in text.inner_text() and "\u202e" not in text.inner_text()
    assert page.locator(".thread img").count() == 0 and page.locator(".thread .odd").count() > 1


@pytest.mark.parametrize("width", (320, 1280))
def test_remarks_fit_the_window(place: Place, site: Site, page: Page, width: int) -> None:
    prepare(place)
    mudroom(
        place, "comment", "try-1", "code.py:3", "a_word_without_spaces_" * 8, "--suggest", "y = " + "1 + " * 60 + "1"
    )
    page.set_viewport_size({"width": width, "height": 700})
    review(page, site)
    page.get_by_role("treeitem").filter(has_text="code.py").click()
    page.locator("tr.thread-row .thread").wait_for()
    page.locator("details.remarks > summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.evaluate("[...document.querySelectorAll('.thread')].map((one) => one.getBoundingClientRect().right)")
    assert boxes and max(boxes) <= width


def test_a_line_number_under_the_pointer_can_be_read(place: Place, site: Site, page: Page) -> None:
    prepare(place)
    review(page, site)
    choose_file(page, "code.py")
    number = page.get_by_role("button", name="Write a remark about line 3", exact=True)
    number.hover()
    primary = page.get_by_role("button", name="Apply all 3")
    colours = "(one) => [getComputedStyle(one).backgroundColor, getComputedStyle(one).color]"
    comes(page, lambda: number.evaluate(colours), primary.evaluate(colours))
