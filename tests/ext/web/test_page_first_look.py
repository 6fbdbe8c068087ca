"""What somebody sees who opens the page for the first time: nothing is cut off on a phone, and the project's own files
come first."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from browser import OpenPage, Site, mudroom, staged

from conftest import Place
from test_page_story import review

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow
GIT = "git -c user.name=x -c user.email=x@y -c init.defaultBranch=main"


@pytest.fixture
def project(place: Place) -> Place:
    place.write("src/a.py", "one\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm first"], cwd=place.project, check=True)
    return place


def is_in_sight(page: Page, part: Locator) -> bool:
    part.wait_for()
    box, width = part.bounding_box(), page.evaluate("innerWidth")
    return box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width


@pytest.mark.deep
def test_a_repository_is_closed_at_first(project: Place, site: Site, page: Page) -> None:
    staged(project, f"echo two >> src/a.py; {GIT} commit -qam second")
    review(page, site)
    page.get_by_role("button", name="Tree", exact=True).click()
    page.get_by_role("heading", level=2, name="src/a.py").wait_for()
    assert page.get_by_role("treeitem").count() == 3, "the repository, src and the file"
    page.get_by_role("treeitem").filter(has_text=".git").locator(".name").click()
    page.get_by_role("treeitem").filter(has_text="refs/heads").first.wait_for()


@pytest.mark.deep
def test_more_needs_than_are_shown_are_counted(project: Place, site: Site, page: Page) -> None:
    for number in range(10):
        mudroom(project, "exec", "--fork", f"f{number}", "--", "sh", "-c", f"echo {number} > n")
    page.goto(site.url)
    page.get_by_text("And 2 more, in the projects below.").wait_for()


@pytest.mark.deep
def test_actions_are_in_sight_on_a_phone(project: Place, site: Site, open_page: OpenPage) -> None:
    mudroom(project, "run", "--yes", "--", "touch", "landed")
    mudroom(project, "exec", "--fork", "empty", "--", "true")
    page = open_page(390)
    page.goto(site.url)
    page.get_by_role("link", name=str(project.project)).click()
    assert is_in_sight(page, page.get_by_role("button", name="Undo"))
    card = page.get_by_role("listitem").filter(has_text="empty")
    card.get_by_text("0 changed files").wait_for()
    assert card.locator(".plus, .minus").count() == 0
    card.get_by_role("link", name="Watch").click()
    for tab in page.get_by_role("tab").all():
        assert is_in_sight(page, tab)
