"""A fork that has changed the home and a second project, in a real browser: by the keyboard, wide and narrow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import OpenPage, Site, comes, mudroom

from box import if_namespaces
from conftest import Place, listing
from test_page_accessible import AXE, SCHEMES, violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, if_namespaces]
LINES = "".join(f"line {number}\n" for number in range(1, 41))
SCRIPT = """
echo p > p; sed -i 's/line 5$/line five/; s/line 30$/line thirty/' ../lib/code
echo b >> ~/.bashrc; mkdir -p ~/.tool; echo t > ~/.tool/tool
"""


@pytest.fixture
def lib(place: Place, site: Site) -> Path:
    lib = place.root / "lib"
    lib.mkdir()
    (lib / "code").write_text(LINES)
    (place.home / ".bashrc").write_text("a\n")
    return lib


def review(place: Place, site: Site, page: Page, width: int) -> str:
    """Show the review of a new fork with parts. Return its address without the view."""
    mudroom(place, "run", "--json", "--home", "--root", "../lib", "--", "sh", "-c", SCRIPT)
    page.set_viewport_size({"width": width, "height": 700})
    own = next(row["id"] for row in site.get("/projects") if row["path"] == str(place.project))
    (fork,) = site.get(f"/projects/{own}")["forks"]
    address = f"{site.url}#/p/{own}/f/{fork['name']}"
    page.goto(address + "/review")
    page.get_by_role("tree", name="Changed files").wait_for()
    return address


def names(page: Page) -> list[str]:
    shown: list[str] = page.get_by_role("treeitem").locator(".name").all_inner_texts()
    return shown


def test_chosen_applied_and_undone(place: Place, site: Site, lib: Path, page: Page) -> None:
    before = listing(lib), listing(place.project), (place.home / ".bashrc").read_text()
    review(place, site, page, 1280)
    page.get_by_role("button", name="Tree", exact=True).click()
    assert names(page) == ["p", "your home", ".tool/", "tool", ".bashrc", str(lib), "code"]
    tree = page.get_by_role("tree", name="Changed files")
    tree.focus()
    page.keyboard.press("Home")
    comes(page, page.get_by_role("heading", level=2).first.inner_text, "p")
    for _line in range(3):
        page.keyboard.press("ArrowDown")
    comes(page, page.get_by_role("heading", level=2).first.inner_text, f"{place.home}/.tool/tool")
    page.keyboard.press("x")
    comes(page, lambda: page.get_by_role("checkbox", name="Apply your home").is_checked(), False)
    page.get_by_role("treeitem").filter(has_text="code").click()
    page.get_by_role("heading", level=2, name=f"{lib}/code").wait_for()
    page.locator("section.hunk").nth(1).get_by_role("checkbox").first.uncheck()
    page.get_by_role("button", name="Apply 3 of 4, 1 of them in part").click()
    dialog = page.get_by_role("dialog")
    said = re.sub(r"\s+", " ", dialog.inner_text())
    assert "Changes in your home .bashrc" in said
    assert f"Changes in {lib} code" in said
    dialog.get_by_role("button", name="Apply", exact=True).click()
    page.get_by_text(f"Applied: 1 written; in your home: 1 written; in {lib}: 1 written.").wait_for()
    assert (place.home / ".bashrc").read_text() == "a\nb\n"
    assert (lib / "code").read_text() == LINES.replace("line 5\n", "line five\n")
    assert not (place.home / ".tool").exists()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Applied, and taken back.").wait_for()
    assert (listing(lib), listing(place.project), (place.home / ".bashrc").read_text()) == before


def test_a_conflict_on_a_phone(place: Place, site: Site, lib: Path, open_page: OpenPage) -> None:
    page = open_page(320, color_scheme="dark")
    address = review(place, site, page, 320)
    (place.home / ".bashrc").write_text("mine\n")
    page.goto(address + "/conflicts")
    page.get_by_role("heading", name=f"{place.home}/.bashrc").wait_for()
    page.get_by_role("button", name="Both", exact=True).click()
    page.get_by_role("button", name="Save decision").click()
    page.get_by_text("1 of 1 decided").wait_for()
    page.goto(address + "/review")
    page.get_by_role("tree", name="Changed files").wait_for()
    comes(page, lambda: "decided" in page.get_by_role("treeitem").filter(has_text=".bashrc").inner_text(), True)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        if AXE.exists():
            assert violations(page) == []
    page.get_by_role("button", name="Apply all 4").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply", exact=True).click()
    page.get_by_text(re.compile("^Applied:")).wait_for()
    assert (place.home / ".bashrc").read_text() == "mine\na\nb\n"
    # the fork is gone by it, but its outcome stays
    own = address.partition("#/p/")[2].partition("/")[0]
    comes(page, lambda: site.get(f"/projects/{own}")["forks"], [])
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Applied, and taken back.").wait_for()
    assert (place.home / ".bashrc").read_text() == "mine\n"


def test_a_remark_about_a_file_of_another_project(place: Place, site: Site, lib: Path, page: Page) -> None:
    review(place, site, page, 1280)
    page.get_by_role("treeitem").filter(has_text="/code").click()
    page.get_by_role("heading", level=2, name=f"{lib}/code").wait_for()
    page.get_by_role("button", name="Write a remark about line 5", exact=True).last.click()
    page.get_by_role("textbox", name="Remark about line 5", exact=True).fill("in digits")
    page.get_by_role("button", name="Add the remark").click()
    thread = page.locator("tr.thread-row").get_by_role("region", name="Remark r1: not sent")
    thread.wait_for()
    page.get_by_text("1 open remark, 1 not sent").wait_for()
    assert f"{lib}/code:5" in mudroom(place, "comment")
