"""The commits of a fork in a real browser: the list, a commit with its differences, and texts that are hostile."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from browser import OpenPage, Site, staged

from conftest import Place
from test_page_accessible import AXE, violations
from test_page_story import review

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
GIT = "git -c user.name=x -c user.email=x@y -c init.defaultBranch=main"
HOSTILE = "printf '<img src=x onerror=alert(1)>\\033[1m\\n\\n<b>body</b>' > m; " + GIT
WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def project(place: Place) -> Place:
    place.write("a.py", "one\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm first"], cwd=place.project, check=True)
    return place


def opened(page: Page) -> None:
    page.locator("details.commits > summary").click()


@pytest.mark.deep
def test_the_list_and_one_commit(project: Place, site: Site, page: Page) -> None:
    staged(
        project, f"echo two >> a.py; {GIT} commit -qam second -m why; echo x > b; {GIT} add b; {GIT} commit -qm third"
    )
    review(page, site)
    page.get_by_text("2 commits on main").wait_for()
    opened(page)
    rows = page.get_by_role("list", name="Commits, oldest first").get_by_role("button")
    assert [row.inner_text().split("\n")[1] for row in rows.all()] == ["second", "third"]
    rows.first.click()
    page.locator(".commit td.code", has_text="two").wait_for()
    assert page.locator(".commit .message").inner_text().strip() == "why"
    assert page.locator(".commit h2").inner_text() == "M a.py"
    assert page.locator(".commit input").count() == 0, "nothing can be chosen in it"
    rows.first.click()
    assert page.locator(".commit").count() == 0


@pytest.mark.deep
def test_hostile_texts_on_a_narrow_window(project: Place, site: Site, open_page: OpenPage) -> None:
    name = "n" * 200
    staged(project, f"{HOSTILE} checkout -qb {name}; echo {'y' * 400} >> a.py; {GIT} commit -qaF m")
    page = open_page(390)
    review(page, site)
    opened(page)
    page.locator("details.commits li > button").click()
    page.locator(".commit td.code", has_text="yyy").first.wait_for()
    assert page.locator("main img, main b").count() == 0
    assert page.locator(".commits .subject").inner_text() == "<img src=x onerror=alert(1)>\\x1b[1m"
    assert page.locator(".commit .message").inner_text().strip() == "<b>body</b>"
    assert page.evaluate(WIDE) <= 0
    box = page.locator("details.commits").bounding_box()
    assert box is not None and box["x"] >= 0 and box["width"] <= 390
    if AXE.exists():
        assert violations(page) == []


@pytest.mark.deep
def test_a_large_commit_is_loaded_in_pages(project: Place, site: Site, page: Page) -> None:
    staged(project, f"seq 2500 > big.py; echo z > z.py; {GIT} add .; {GIT} commit -qm long")
    review(page, site)
    opened(page)
    page.locator("details.commits li > button").click()
    commits = page.locator("details.commits")  # the file beside them is as long
    commits.get_by_role("button", name="More of this file").click()
    commits.get_by_role("button", name="More of this file").wait_for(state="detached")
    commits.get_by_role("button", name="Show this file").click()
    page.locator(".commit td.code", has_text="z").first.wait_for()


@pytest.mark.deep
def test_without_commits_or_with_a_damaged_repository(project: Place, site: Site, page: Page) -> None:
    staged(project, "git config a.b c; git branch other")
    review(page, site)
    assert page.locator(".commits").count() == 0
    staged(project, f"echo 2 > a.py; {GIT} commit -qam two; rm -r .git/objects/??")
    page.get_by_role("button", name="Reload").click()
    page.get_by_text("The commits of this fork cannot be listed").wait_for()
