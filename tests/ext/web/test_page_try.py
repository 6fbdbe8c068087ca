"""A try in a real browser: its candidates, where they differ, and two of them side by side. The way to an apply is in
``test_page_story.py``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from browser import OpenPage, Site, mudroom

from conftest import Place
from mudroom.ext.attempts.record import save
from test_page_accessible import AXE, violations
from test_page_commits import WIDE
from trying import project, tried

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["project"]  # a fixture

pytestmark = [pytest.mark.deep, pytest.mark.slow]
SAME = "sed -i s/two/2/ a.py; echo x > new"
OTHER = "sed -i s/two/TWO/ a.py; echo x > new; rm b.py"
HOSTILE = "printf x > \"$(printf '\\377<img src=x onerror=alert(1)>\\033[2J')\""


def show(page: Page, site: Site) -> None:
    page.goto(site.address("try", "t1"))
    page.get_by_role("table", name="Candidates, the best first").wait_for()


def test_kinds_of_paths(project: Place, site: Site, page: Page) -> None:
    tried(project, [OTHER, SAME])
    show(page, site)
    page.get_by_role("button", name="Only in some 1").click()
    page.get_by_role("heading", level=2, name="b.py").wait_for()
    page.get_by_text("Only in attempt 2: a file").wait_for()
    assert page.get_by_text("Not changed: attempt 2").count() == 1
    page.get_by_role("button", name="The same in all 1").click()
    page.get_by_role("heading", level=2, name="new").wait_for()
    page.get_by_text("Only in attempt 1: a file").or_(page.get_by_text("Only in attempt 2: a file")).wait_for()
    page.get_by_label("Left").select_option("Attempt 2, the best")
    page.get_by_label("Right").select_option("Attempt 1")
    page.get_by_text("Both sides are the same here.").wait_for()


def test_the_keyboard(project: Place, site: Site, page: Page) -> None:
    tried(project, [f"for i in 1 2 3; do echo {number} > f$i; done" for number in (1, 2)])
    show(page, site)
    page.get_by_role("heading", level=2, name="f1").wait_for()
    page.keyboard.press("j")
    page.get_by_role("heading", level=2, name="f2").wait_for()
    page.keyboard.press("End")
    page.get_by_role("heading", level=2, name="f3").wait_for()
    page.keyboard.press("k")
    page.get_by_role("heading", level=2, name="f2").wait_for()
    assert page.get_by_role("treeitem", selected=True).inner_text().split()[0] == "f2"
    output = page.get_by_role("button", name="Output of the judge of attempt 1")
    output.focus()
    page.keyboard.press("Enter")
    page.get_by_text("report of 1").wait_for()
    assert output.get_attribute("aria-expanded") == "true"


def test_what_becomes_of_the_candidates_meanwhile(project: Place, site: Site, page: Page) -> None:
    """The page is told: one is discarded, one is changed since it was judged."""
    tried(project, [OTHER, SAME])
    show(page, site)
    page.locator("td.code", has_text="TWO").wait_for()
    mudroom(project, "exec", "--fork", "t1-2", "--json", "--", "sh", "-c", "echo more > more")
    page.get_by_text("changed since it was judged").wait_for()
    mudroom(project, "discard", "t1-1", "--yes")
    page.get_by_text("its fork is gone: applied or discarded").wait_for()
    page.get_by_text("Only one candidate has changes that can be read.").wait_for()
    assert page.get_by_role("link", name="Review attempt 1").count() == 0


def test_hostile_names_on_a_narrow_window(project: Place, site: Site, open_page: OpenPage) -> None:
    record = tried(project, [f"{HOSTILE}; mkdir -p {'d' * 200}; echo {'y' * 400} > {'d' * 200}/f", SAME])
    first = record.attempts[0]._replace(note="<b>\x1b[2J" + "n" * 300, report=b"\x1b[31mred\x1b[0m <i>\n")
    with project.session() as session:
        save(session.vault.path, record._replace(attempts=(first, record.attempts[1]), command=(b"<img src=x>" * 9,)))
    page = open_page(390)
    show(page, site)
    page.get_by_role("treeitem").filter(has_text="onerror").click()
    page.get_by_role("heading", level=2).filter(has_text="onerror").wait_for()
    page.get_by_role("button", name="Output of the judge of attempt 1").click()
    assert page.locator(".sgr-31").inner_text() == "red"
    assert page.locator("main img, main b, main i").count() == 0
    assert page.evaluate(WIDE) <= 0
    if AXE.exists():
        assert violations(page) == []


def test_many_paths(project: Place, site: Site, page: Page) -> None:
    tried(project, [f"for i in $(seq 2100); do echo {number} > f$i; done" for number in (1, 2)])
    show(page, site)
    page.get_by_text("2,000 of 2,100 are listed.").wait_for()
    assert page.get_by_role("treeitem").count() < 200
    page.get_by_role("button", name="More paths").click()
    page.get_by_role("button", name="More paths").wait_for(state="detached")
    page.keyboard.press("End")
    page.get_by_role("heading", level=2, name="f999").wait_for()


def test_empty_and_damaged(project: Place, site: Site, page: Page) -> None:
    record = tried(project, ["true"], passed=[9])
    show(page, site)
    page.get_by_text("No candidate has changes that can be read.").wait_for()
    page.get_by_text("No attempt passed.").wait_for()
    with project.session() as session:
        place = session.vault.path + b"/attempts/t1/record"
        save(session.vault.path, record._replace(attempts=()))
    page.reload()
    page.get_by_text("0 attempts").wait_for()
    with open(place, "wb") as stream:
        stream.write(b"\xc1")
    page.goto(site.url + f"#/p/{site.project}")
    page.get_by_text("its record is damaged").wait_for()
    page.goto(site.address("try", "t1"))
    page.get_by_text("the record of the try t1 is damaged").wait_for()
    os.unlink(place)
    page.goto(site.address("try", "t2"))
    page.get_by_text("there is no try named t2").wait_for()
