"""An apply as one commit in a real browser: the choice, its message, the outcome, and refusals."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from browser import OpenPage, Site, staged
from handgit import git

from conftest import Place
from test_page_accessible import AXE, violations
from test_page_story import apply, review

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def project(place: Place) -> Place:
    place.write("a.py", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm first")
    git(place.project, "git config user.name Me; git config user.email me@example.org")
    return place


def log(place: Place) -> str:
    return git(place.project, "git log --format=%s; git status --porcelain")


@pytest.mark.deep
def test_apply_commit_and_undo(project: Place, site: Site, page: Page) -> None:
    staged(project, "echo two >> a.py; echo b > b.py")
    review(page, site)
    page.get_by_role("checkbox", name="As one commit").check()
    button = page.get_by_role("button", name="Apply all 2 and commit", exact=True)
    page.get_by_text("The commit needs a message.").wait_for()
    assert button.is_disabled()
    message = page.get_by_role("textbox", name="Message of the commit")
    message.fill("second\n\nand why")
    page.reload()
    page.get_by_role("tree", name="Changed files").wait_for()
    assert message.input_value() == "second\n\nand why", "it is kept"
    button.click()
    page.get_by_text("Committed: ").wait_for()
    made = git(project.project, "git rev-parse HEAD")[:10]
    assert f"Committed: {made} on main, 2 files." in page.locator(".banner.good").inner_text()
    assert git(project.project, "git log -1 --format=%B").strip() == "second\n\nand why"
    assert log(project) == "second\nfirst\n"
    page.get_by_role("button", name="Undo", exact=True).click()
    page.get_by_text("Applied, and taken back.").wait_for()
    assert log(project) == "first\n" and page.get_by_text("Committed: ").count() == 0


@pytest.mark.deep
def test_refused_in_a_merge_with_nothing_applied(project: Place, site: Site, page: Page) -> None:
    staged(project, "echo two >> a.py")
    git(project.project, "git rev-parse HEAD > .git/MERGE_HEAD")
    review(page, site)
    page.get_by_role("checkbox", name="As one commit").check()
    page.get_by_role("textbox", name="Message of the commit").fill("second")
    page.get_by_role("button", name="Apply all 1 and commit").click()
    page.get_by_text("a merge is not finished").wait_for()
    assert page.get_by_text("Nothing was applied.").is_visible()
    assert (project.project / "a.py").read_text() == "one\n"
    git(project.project, "rm .git/MERGE_HEAD")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Apply all 1 and commit").click()
    page.get_by_text("Committed: ").wait_for()


@pytest.mark.deep
def test_what_does_not_go_with_it(project: Place, site: Site, page: Page) -> None:
    staged(project, "echo two >> a.py; git -c user.name=x -c user.email=x@y commit -qam theirs")
    review(page, site)
    page.get_by_text("How", exact=True).click()
    backups = page.get_by_role("checkbox", name="Leave what is replaced")
    backups.check()
    page.get_by_role("checkbox", name="As one commit").check()
    page.get_by_role("textbox", name="Message of the commit").fill("second")
    assert backups.is_disabled() and not backups.is_checked()
    page.get_by_role("button", name="Tree", exact=True).click()
    repository = page.get_by_role("checkbox", name="Apply .git").first
    repository.check()
    page.get_by_text("A repository is chosen: it cannot be part of a commit.").wait_for()
    repository.uncheck()
    apply(page, page.get_by_role("button", name="and commit").inner_text())
    page.get_by_text("Committed: ").wait_for()
    assert log(project) == "second\nfirst\n"


@pytest.mark.deep
def test_on_a_narrow_window(project: Place, site: Site, open_page: OpenPage) -> None:
    staged(project, "echo two >> a.py")
    page = open_page(390)
    review(page, site)
    page.get_by_role("checkbox", name="As one commit").check()
    page.get_by_role("textbox", name="Message of the commit").fill("m" * 300 + "\n" * 30)
    page.get_by_role("button", name="Apply all 1 and commit").wait_for()
    assert page.evaluate(WIDE) <= 0
    bar = page.locator(".bar").bounding_box()
    assert bar is not None and bar["height"] < 400
    page.locator(".how summary").click()
    panel = page.locator(".how > .panel").bounding_box()
    assert panel is not None and panel["x"] >= 0 and panel["x"] + panel["width"] <= 390 and panel["y"] >= 0
    if AXE.exists():
        assert violations(page) == []


@pytest.mark.deep
def test_without_a_repository(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo b > b.py")
    review(page, site)
    page.get_by_role("button", name="Apply all 1").wait_for()
    assert page.get_by_role("checkbox", name="As one commit").count() == 0
