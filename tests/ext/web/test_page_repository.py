"""An agent has committed in its fork: on the page the repository is one choice, which nobody makes without knowing."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from browser import Site, staged

from conftest import Place
from test_page_story import apply, review

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]
GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=main")


def git(place: Place, *words: str) -> str:
    return subprocess.run([*GIT, *words], cwd=place.project, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def committed(place: Place) -> None:
    place.write("a.py", "1\n")
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "first")
    staged(place, f"echo 2 > a.py; {' '.join(GIT)} commit -qam second; echo x > .git/hooks/post-checkout")


def test_it_stays_unless_it_is_chosen(place: Place, committed: None, site: Site, page: Page) -> None:
    review(page, site)
    page.get_by_role("button", name="Tree").click()
    assert not page.get_by_role("checkbox", name="Apply .git/", exact=True).is_checked()
    total = page.get_by_role("button", name="Apply 1 of ")
    total.wait_for()
    apply(page, total.inner_text())
    assert (place.project / "a.py").read_text() == "2\n"
    assert git(place, "log", "--format=%s") == "first\n"
    assert git(place, "status", "--porcelain") == " M a.py\n"


def test_one_of_its_files_stands_for_all_of_it(place: Place, committed: None, site: Site, page: Page) -> None:
    review(page, site)
    page.get_by_role("treeitem", name="Generated, vendored").locator("strong").click()
    box = page.get_by_role("checkbox", name="Apply .git/index").first
    box.check()
    page.get_by_role("checkbox", name="Apply .git/logs/HEAD").and_(page.locator(":checked")).first.wait_for()
    hook = page.get_by_role("checkbox", name="Apply .git/hooks/post-checkout").first
    assert not hook.is_checked(), "that is named by itself"
    button = page.get_by_role("button", name="Apply ", exact=False).filter(has_text=" of ")
    button.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("The repository, with what was committed").wait_for()
    dialog.get_by_role("button", name="Apply", exact=True).click()
    page.get_by_text("Applied:").wait_for()
    assert git(place, "log", "--format=%s") == "second\nfirst\n"
    assert git(place, "status", "--porcelain") == ""
    assert not (place.project / ".git/hooks/post-checkout").exists()
