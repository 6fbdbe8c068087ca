"""The difference of a file, and conflicts, as a user sees and decides them in a browser."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

import pytest
from browser import Site, mudroom, staged

from conftest import Place, tick

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

TEXT = "".join(f"line {number}\n" for number in range(1, 101))
STRANGE = r"""printf 'x = "\342\200\256"  # \033[2J \377 <img src=x onerror=alert(1)>\n' > strange.py"""


def review(site: Site, name: str) -> str:
    found: str = site.address("f", "try-1", "review", base64.urlsafe_b64encode(name.encode()).decode().rstrip("="))
    return found


@pytest.fixture
def changed(place: Place, site: Site) -> Site:
    place.write("lines.txt", TEXT)
    place.write("strange.py", "x = 1\n")
    staged(place, STRANGE + "; sed -i 's/^line 10$/ten/; s/^line 12$/twelve/; s/^line 70$/seventy/' lines.txt")
    return site


def codes(page: Page, kind: str) -> list[str]:
    found: list[str] = page.locator(f"tr.{kind} td.code").all_inner_texts()
    return found


def test_what_cannot_be_seen_has_a_name_and_markup_is_text(changed: Site, page: Page) -> None:
    page.goto(review(changed, "strange.py"))
    page.locator("td.code .t-comment").first.wait_for()  # what is coloured is made anew
    assert page.get_by_role("img", name=re.compile("right-to-left override")).count() == 1
    assert page.locator("td.code .odd").all_inner_texts() == ["RLO", "ESC", r"\xff"]
    assert codes(page, "added") == [r'x = "RLO"  # ESC[2J \xff <img src=x onerror=alert(1)>']
    assert page.locator("td.code img").count() == 0


@pytest.mark.deep
def test_code_is_coloured_by_a_worker_and_nothing_else_is_a_script(changed: Site, chromium: Browser) -> None:
    with chromium.new_context() as context:  # not a page that is watched: it tries what the policy stops
        page = context.new_page()
        page.goto(changed.told["login"])
        page.wait_for_selector("main")
        page.goto(review(changed, "strange.py"))
        page.locator("td.code .t-comment").first.wait_for()
        for attempt in ("new Worker('other.js')", "trustedTypes.createPolicy('worker', {})"):
            with pytest.raises(Exception, match="TypeError"):
                page.evaluate(attempt)


@pytest.mark.deep
def test_hunks_and_changes_are_chosen_with_the_keyboard_and_the_mouse(changed: Site, page: Page) -> None:
    page.goto(review(changed, "lines.txt"))
    page.get_by_role("checkbox", name="Apply hunk 2 of 2").wait_for()
    page.keyboard.press("n")
    page.keyboard.press("n")
    page.keyboard.press("x")
    page.get_by_role("region", name=re.compile("Hunk 2 of 2: .*not chosen")).wait_for()
    page.get_by_role("button", name="choose 2 changes apart").click()
    page.get_by_role("checkbox", name="Apply change 1 of 2 in this hunk").uncheck()
    page.get_by_role("region", name=re.compile("Hunk 1 of 2: .*partly chosen")).wait_for()
    assert page.locator("tbody.off tr.added td.code").all_inner_texts() == ["ten", "seventy"]


@pytest.mark.deep
def test_unchanged_lines_come_when_they_are_asked_for(changed: Site, page: Page) -> None:
    page.goto(review(changed, "lines.txt"))
    page.get_by_role("button", name="Show 20 lines more, from the top").first.click()
    page.get_by_role("cell", name="line 30", exact=True).wait_for()
    assert page.get_by_text("⋯ 31 lines unchanged").count() == 1
    page.get_by_role("button", name="Show all 31 lines").click()
    page.get_by_role("cell", name="line 50", exact=True).wait_for()


@pytest.mark.deep
def test_a_conflict_is_decided_place_by_place(changed: Site, place: Place, page: Page) -> None:
    tick()
    place.write("lines.txt", TEXT.replace("line 10\n", "zehn\n").replace("line 70\n", "siebzig\n"))
    page.goto(changed.address("f", "try-1", "conflicts"))
    first = page.get_by_role("group", name="What becomes of conflict 1")
    first.get_by_role("button", name="Both").click()
    page.get_by_label("Result of conflict 1").fill("zehn <b>\nten\n")
    save = page.get_by_role("button", name="Save decision")
    assert save.is_disabled()
    page.get_by_role("group", name="What becomes of conflict 2").get_by_role("button", name="Fork's").click()

    # one side changes while somebody decides: nothing is decided, and what was chosen stays
    place.write("lines.txt", "first\n" + (place.project / "lines.txt").read_text())
    save.click()
    page.get_by_role("button", name="Look again").click()
    page.get_by_role("cell", name="first", exact=True).first.wait_for()
    assert page.get_by_label("Result of conflict 1").input_value() == "zehn <b>\nten\n"
    save.click()
    page.get_by_text("All conflicts are decided.").wait_for()
    mudroom(place, "apply", "try-1", "--yes")
    lines = (place.project / "lines.txt").read_text().splitlines()
    assert lines[0] == "first"
    assert lines[10:13] == ["zehn <b>", "ten", "line 11"]
    assert "seventy" in lines and "siebzig" not in lines
