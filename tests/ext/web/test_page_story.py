"""A whole story in a real browser: what a real command has staged is reviewed, chosen from by hunks, applied, merged
with what the user has changed meanwhile, decided where it conflicts, and taken back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from browser import OpenPage, Site, comes, mudroom, staged

from conftest import Place
from trying import tried

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
LINES = "".join(f"line {number}\n" for number in range(1, 41))


def review(page: Page, site: Site, fork: str = "try-1") -> None:
    page.goto(site.address("f", fork, "review"))
    page.get_by_role("heading", name=f"Review of {fork}", exact=True).wait_for(state="attached")
    page.get_by_role("tree", name="Changed files").wait_for()


def choose_file(page: Page, name: str) -> None:
    page.get_by_role("treeitem").filter(has_text=name).click()
    page.get_by_role("heading", level=2, name=name).wait_for()


def apply(page: Page, button: str) -> None:
    """Press it, and say yes to what is told before."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    done = page.get_by_text(re.compile("^Applied:|Nothing was applied"))
    dialog.or_(done).first.wait_for()
    if dialog.is_visible():
        dialog.get_by_role("button", name="Apply", exact=True).click()
    done.first.wait_for()


def test_hunk_conflict_apply_undo(place: Place, site: Site, page: Page) -> None:
    place.write("text.txt", LINES)
    place.write("other.txt", "a\nb\nc\n")
    edit = "sed -i -e 's/^line 3$/LINE 3/' -e 's/^line 30$/LINE 30/' text.txt; sed -i s/b/B/ other.txt"
    staged(place, edit + "; echo new > new.txt")
    review(page, site)
    choose_file(page, "text.txt")
    hunks = page.locator("section.hunk")
    hunks.nth(1).wait_for()
    hunks.nth(1).get_by_role("checkbox").first.uncheck()
    page.get_by_role("checkbox", name="Apply other.txt").first.uncheck()
    apply(page, "Apply 2 of 3, 1 of them in part")
    assert (place.project / "text.txt").read_text() == LINES.replace("line 3\n", "LINE 3\n")
    assert (place.project / "new.txt").read_text() == "new\n"
    assert (place.project / "other.txt").read_text() == "a\nb\nc\n"

    # what is left conflicts with what the user does now
    place.write("other.txt", "a\nmine\nc\n")
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Apply 1 of 2").wait_for()
    page.get_by_role("navigation", name="Views of this fork").get_by_role("link", name="Conflicts").click()
    page.get_by_role("heading", name="other.txt").wait_for()
    page.get_by_role("button", name="Both", exact=True).click()
    page.get_by_role("button", name="Save decision").click()
    page.get_by_text("1 of 1 decided").wait_for()

    review(page, site)
    apply(page, "Apply all 2")
    assert (place.project / "other.txt").read_text() == "a\nmine\nB\nc\n"
    assert (place.project / "text.txt").read_text() == LINES.replace("line 3\n", "LINE 3\n").replace(
        "line 30", "LINE 30"
    )
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("taken back").first.wait_for()
    assert (place.project / "other.txt").read_text() == "a\nmine\nc\n"
    assert "line 30\n" in (place.project / "text.txt").read_text()


@pytest.mark.deep
def test_a_hunk_brings_no_permissions_along(place: Place, site: Site, page: Page) -> None:
    place.write("tool", LINES)
    (place.project / "tool").chmod(0o644)
    staged(place, "sed -i -e 's/^line 3$/LINE 3/' -e 's/^line 30$/LINE 30/' tool; chmod 755 tool")
    review(page, site)
    choose_file(page, "tool")
    permissions = page.get_by_role("checkbox", name="Apply permissions 0644 → 0755 of tool")
    assert permissions.is_checked()
    page.locator("section.hunk").nth(1).get_by_role("checkbox").first.uncheck()
    page.get_by_text("1 of 1 chosen, 1 of them in part").wait_for()
    assert not permissions.is_checked()
    apply(page, "Apply 1, 1 of them in part")
    assert (place.project / "tool").read_text() == LINES.replace("line 3\n", "LINE 3\n")
    assert (place.project / "tool").stat().st_mode & 0o7777 == 0o644
    page.get_by_role("button", name="Go on").click()
    permissions.check()
    apply(page, "Apply all 1")
    assert (place.project / "tool").read_text() == LINES.replace("line 3\n", "LINE 3\n").replace("line 30", "LINE 30")
    assert (place.project / "tool").stat().st_mode & 0o7777 == 0o755


@pytest.mark.deep
def test_two_pages_that_decide_the_same(place: Place, site: Site, open_page: OpenPage) -> None:
    """The second has not heard of it, is told when it does the same, and nothing happens twice."""
    place.write("a.txt", "1\n")
    staged(place, "echo 2 > a.txt; echo b > b.txt")
    first, second = open_page(), open_page()
    review(first, site)
    review(second, site)
    second.get_by_role("checkbox", name="Apply b.txt").first.uncheck()
    second.get_by_role("button", name="Apply 1 of 2").wait_for()
    second.route(re.compile("/changes$|/standing|/projects/[^/]+$"), lambda route: route.abort())
    apply(first, "Apply all 2")
    apply(second, "Apply 1 of 2")
    second.get_by_text("Nothing was applied").wait_for()
    assert (place.project / "b.txt").read_text() == "b\n"
    assert len(site.get(f"/projects/{site.project}")["applies"]) == 1


def test_a_fork_that_moves_while_it_is_looked_at(place: Place, site: Site, page: Page) -> None:
    """What is on the page stays, says so, and cannot be applied any more; the choice is carried over."""
    place.write("a.txt", "1\n")
    staged(place, "echo 2 > a.txt")
    review(page, site)
    page.get_by_role("button", name="Apply all 1").wait_for()
    staged(place, "echo later > later.txt; echo 3 > a.txt")
    page.get_by_text("This fork has changed since you looked: 1 more file").wait_for()
    page.get_by_role("button", name="Apply all 1").click()
    page.get_by_text("Nothing was applied").wait_for()
    assert (place.project / "a.txt").read_text() == "1\n"
    page.get_by_role("button", name="Reload").last.click()
    page.get_by_role("button", name="Apply all 2").wait_for()


@pytest.mark.deep
def test_nothing_is_discarded_but_what_was_looked_at(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo 1 > a")
    review(page, site)
    page.get_by_role("button", name="Discard").click()
    staged(place, "echo 2 > b")
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    again = page.get_by_role("dialog", name="Discard it as it is now?")
    again.get_by_text("1 changed file then, 2 changed files now.").wait_for()
    again.get_by_role("button", name="Cancel").click()
    assert "+2" in mudroom(place, "diff", "try-1")


@pytest.mark.deep
def test_a_fork_that_is_gone(place: Place, site: Site, page: Page) -> None:
    place.write("a.txt", "1\n")
    staged(place, "echo 2 > a.txt")
    review(page, site)
    mudroom(place, "discard", "try-1")
    page.get_by_text("This fork is gone").wait_for()


@pytest.mark.deep
def test_what_runs_later_is_named_before(place: Place, site: Site, page: Page) -> None:
    place.write("package.json", "{}\n")
    staged(place, "echo '{\"scripts\": {}}' > package.json; echo x > x.txt")
    review(page, site)
    page.get_by_role("button", name="Apply all 2").click()
    dialog = page.get_by_role("dialog")
    assert "package.json" in dialog.inner_text() and "Runs by itself later" in dialog.inner_text()
    dialog.get_by_role("button", name="Cancel").click()
    assert (place.project / "package.json").read_text() == "{}\n"


@pytest.mark.deep
def test_a_question_goes_with_the_view_that_it_is_about(place: Place, site: Site, page: Page) -> None:
    """Else somebody who has gone back to another fork would say yes to this one."""
    for fork in ("try-1", "try-2"):
        staged(place, f"echo {fork} > package.json", fork)
    review(page, site, "try-1")
    review(page, site, "try-2")
    page.get_by_role("button", name="Apply all 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply", exact=True).wait_for()
    page.go_back()
    page.get_by_role("heading", name="Review of try-1").wait_for()
    page.get_by_role("dialog").wait_for(state="hidden")
    page.get_by_role("button", name="Apply all 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply", exact=True).click()
    page.get_by_text("Applied:").wait_for()
    assert (place.project / "package.json").read_text() == "try-1\n"


@pytest.mark.deep
@pytest.mark.parametrize("passes", [True, False])
def test_the_verify_command_is_heard(place: Place, site: Site, page: Page, passes: bool) -> None:
    script = f"echo trying the result; {'exit 0' if passes else 'exit 3'}"
    place.write(".mudroom/policy.yaml", f"verify:\n  command: [sh, -c, '{script}']\n  when: always\n")
    place.write("a.txt", "1\n")
    staged(place, "echo 2 > a.txt")
    review(page, site)
    apply(page, "Apply all 1")
    assert (place.project / "a.txt").read_text() == ("2\n" if passes else "1\n")
    if not passes:
        assert "trying the result" in page.get_by_role("log").inner_text()


@pytest.mark.deep
def test_names_of_a_stranger(place: Place, site: Site, page: Page) -> None:
    """HTML is text, what turns the reading order is shown, and no name is too long or no text."""
    names = ["<img src=x onerror=alert(1)>", "a\u202etxt.exe", "line\nbreak", "\x1b[31mred", "long-" + "x" * 240]
    script = "; ".join(f"echo 1 > {quoted(name)}" for name in names) + "; printf 1 > \"$(printf 'not\\377utf')\""
    place.write("keep", "")
    staged(place, script)
    review(page, site)
    page.get_by_role("button", name="Apply all 6").wait_for()
    shown = page.get_by_role("tree").inner_text()
    for text in ("<img src=x onerror=alert(1)>", "aRLOtxt.exe", "lineLFbreak", "ESC[31mred", "not\\xffutf"):
        assert text in shown
    marked = page.get_by_role("tree").locator(".odd")
    assert sorted(marked.all_inner_texts()) == ["ESC", "LF", "RLO", "\\xff"]
    assert page.locator("main img").count() == 0
    apply(page, "Apply all 6")
    assert len(list(place.project.iterdir())) >= 7


def quoted(name: str) -> str:
    return "'" + name.replace("'", "'\\''") + "'"


@pytest.mark.deep
def test_by_the_keyboard_alone(place: Place, site: Site, page: Page) -> None:
    for name in ("a", "b", "c"):
        place.write(name, "1\n")
    staged(place, "for name in a b c; do echo 2 > $name; done")
    review(page, site)
    page.get_by_role("button", name="Apply all 3").wait_for()
    page.keyboard.press("j")
    page.get_by_role("heading", level=2, name="b", exact=True).wait_for()
    page.keyboard.press("x")
    page.get_by_role("button", name="Apply 2 of 3").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Shortcuts").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.keyboard.press("a")
    page.get_by_role("dialog", name="Apply 2 of 3?").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert (place.project / "a").read_text() == "1\n", "the key alone, and Enter, apply nothing"
    page.keyboard.press("a")
    page.get_by_role("dialog", name="Apply 2 of 3?").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("Applied:").wait_for()
    assert [(place.project / name).read_text() for name in "abc"] == ["2\n", "1\n", "2\n"]


@pytest.mark.deep
def test_ten_thousand_files(place: Place, site: Site, page: Page) -> None:
    """They are usable: the list holds the few lines that are seen, the keyboard goes to the end, a filter finds one."""
    place.write("keep", "")
    staged(place, "mkdir d; cd d; seq 10000 | split -l 1 -a 5 -d - file-")
    review(page, site)
    page.get_by_role("button", name="Apply all 10,000").wait_for()
    assert page.get_by_role("treeitem").count() < 150
    page.keyboard.press("End")
    page.get_by_role("heading", level=2, name="d/file-09999").wait_for()
    page.get_by_role("searchbox", name="Filter files").fill("file-0777")
    page.get_by_role("treeitem").filter(has_text="file-07770").wait_for()
    assert page.get_by_role("treeitem").count() == 11


@pytest.mark.deep
def test_two_tabs_on_one_conflict(place: Place, site: Site, open_page: OpenPage) -> None:
    """What was chosen in the second is not saved over what the first has decided: it is told so, and looks again."""
    place.write("f", "one\n")
    staged(place, "echo theirs > f")
    place.write("f", "mine\n")
    pages = [open_page(), open_page()]
    for page, side in zip(pages, ("Fork's everywhere", "Project's everywhere"), strict=True):
        page.goto(site.address("f", "try-1", "conflicts"))
        page.get_by_role("button", name=side).click()
        page.get_by_text("every place is decided").wait_for()
    first, second = pages
    first.get_by_role("button", name="Save decision").click()
    first.get_by_text("1 of 1 decided").wait_for()
    second.get_by_text("Somebody else has decided about it meanwhile").wait_for()
    assert first.get_by_text("Somebody else").count() == 0
    second.get_by_role("button", name="Save decision").click()
    second.get_by_text("somebody else has decided about f meanwhile").wait_for()
    mudroom(place, "apply", "try-1", "--yes")
    assert (place.project / "f").read_text() == "theirs\n"


@pytest.mark.deep
def test_a_candidate_of_a_try_is_compared_and_applied(place: Place, site: Site, page: Page) -> None:
    place.write("a.py", "one\ntwo\n")
    place.write("b.py", "b\n")
    same = "sed -i s/two/2/ a.py; echo x > new"
    tried(place, ["sed -i s/two/TWO/ a.py; echo x > new; rm b.py", same, same])
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
    assert (place.project / "a.py").read_text() == "one\n2\n"
