"""A try in a real browser: its candidates, where they differ, two of them side by side, and the way to the review of
one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from browser import OpenPage, Site, comes, mudroom
from conftest import Place
from mudroom.vault.attempts.record import save
from test_page_accessible import AXE, violations
from test_page_commits import WIDE
from test_page_story import apply
from trying import tried

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
SAME = "sed -i s/two/2/ a.py; echo x > new"
OTHER = "sed -i s/two/TWO/ a.py; echo x > new; rm b.py"
HOSTILE = "printf x > \"$(printf '\\377<img src=x onerror=alert(1)>\\033[2J')\""


@pytest.fixture
def project(place: Place) -> Place:
    place.write("a.py", "one\ntwo\n")
    place.write("b.py", "b\n")
    return place


def show(page: Page, site: Site) -> None:
    page.goto(site.address("try", "t1"))
    page.get_by_role("table", name="Candidates, the best first").wait_for()


def codes(page: Page) -> list[str]:
    """The lines that are shown, with their signs."""
    return [
        row.inner_text().replace("\t", " ").split(None, 1)[-1] for row in page.locator("table.lines tbody tr").all()
    ]


def test_from_the_project_to_an_apply(project: Place, site: Site, page: Page) -> None:
    tried(project, [OTHER, SAME, SAME])
    page.goto(site.url + f"#/p/{site.project}")
    page.get_by_role("link", name="Compare the candidates of t1").click()
    table = page.get_by_role("table", name="Candidates, the best first")
    table.wait_for()
    rows = [row.inner_text().split() for row in table.locator("tbody tr").all()]
    assert [row[:2] for row in rows] == [["2,", "3"], ["1", "passed"]]
    assert page.get_by_role("button", name="Different 1").get_attribute("aria-pressed") == "true"
    page.get_by_role("heading", level=2, name="a.py").wait_for()
    assert page.get_by_role("list", name="Results at this path").inner_text().split("\n") == [
        "attempt 2: modified +1 \u22121",
        "attempt 1: modified +1 \u22121",
    ]
    page.locator("td.code", has_text="TWO").wait_for()
    assert page.locator("td.code.removed, tr.removed td.code").inner_text() == "2"
    page.get_by_label("Left").select_option("The original")
    comes(page, lambda: page.locator("tr.removed td.code").inner_text(), "two")
    page.get_by_role("button", name="Sides that differ").click()
    comes(page, lambda: page.locator("tr.removed td.code").inner_text(), "2")
    page.get_by_role("button", name="Side by side", exact=True).click()
    page.locator("table.beside").wait_for()
    page.get_by_role("button", name="Unified").click()
    page.get_by_role("link", name="Review attempt 2", exact=True).last.click()
    page.get_by_role("heading", name="Review of t1-2", exact=True).wait_for(state="attached")
    apply(page, "Apply all 2")
    assert (project.project / "a.py").read_text() == "one\n2\n"


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
def test_many_paths(project: Place, site: Site, page: Page) -> None:
    tried(project, [f"for i in $(seq 2100); do echo {number} > f$i; done" for number in (1, 2)])
    show(page, site)
    page.get_by_text("2,000 of 2,100 are listed.").wait_for()
    assert page.get_by_role("treeitem").count() < 200
    page.get_by_role("button", name="More paths").click()
    page.get_by_role("button", name="More paths").wait_for(state="detached")
    page.keyboard.press("End")
    page.get_by_role("heading", level=2, name="f999").wait_for()


@pytest.mark.deep
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
