"""The page in a real browser: the first view, and a change that a real command has staged."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from browser import HOME, OpenPage, Site, mudroom, staged

from conftest import Place
from test_page_story import review

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route


@pytest.mark.deep
def test_what_a_command_has_staged_is_there(place: Place, site: Site, page: Page) -> None:
    place.write("a.py", "x = 1\n")
    staged(place, "echo 'y = 2' >> a.py; echo new > '<b>b.txt'")
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_text("<b>b.txt").first.wait_for()
    page.get_by_role("treeitem").filter(has_text="a.py").wait_for()
    assert page.locator("main b").count() == 0


@pytest.mark.deep
@pytest.mark.usefixtures("own_site")
def test_a_long_list_is_sent_once_however_often_it_is_asked_for(place: Place, site: Site, page: Page) -> None:
    """What is asked before the modules are here is not asked again by them; and after that only what is new is sent."""
    staged(place, "for i in $(seq 200); do echo $i > f$i.txt; done")
    page.goto(site.url)
    page.locator(HOME).wait_for()
    page.goto("about:blank")
    asked: list[tuple[str, int]] = []
    page.on("response", lambda answer: asked.append((answer.url.partition("/api/v1")[2], answer.status)))
    changes = f"/projects/{site.project}/forks/try-1/changes"
    with page.expect_response(lambda answer: answer.url.endswith(changes) and answer.status == 304):
        page.goto(site.address("f", "try-1", "review"))  # what was asked that early may be old by now
    page.get_by_text("200 of 200 chosen").wait_for()
    statuses = [status for path, status in asked if path == changes]
    assert statuses == [200, *[304] * (len(statuses) - 1)]
    assert [path for path, _status in asked].count("/me") == 1
    with page.expect_response(lambda answer: answer.url.endswith(changes) and answer.status == 200):
        staged(place, "echo more > more.txt")
    page.get_by_text("This fork has changed since you looked").wait_for()


@pytest.mark.deep
def test_the_page_says_what_is_certified_and_warns_of_what_is_closed(place: Place, site: Site, page: Page) -> None:
    """Where a platform opens by a record: one line, and a warning for each part that is closed."""
    told = ["macOS 26.0 25A1, open", "closed: network: gate is refused: gate_port fell"]

    def with_record(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "sandbox": told})

    place.write("a.py", "x = 1\n")
    page.goto(site.url)
    page.locator(HOME).wait_for()
    assert page.get_by_text("Sandbox:").count() == 0, "Linux needs no record"
    page.route("**/api/v1/me", with_record)
    page.reload()
    page.get_by_text(f"Sandbox: {told[0]}").wait_for()
    warning = page.get_by_text(f"Sandbox: {told[1]}")
    assert "warn" in (warning.get_attribute("class") or "")
    assert "warn" not in (page.get_by_text(f"Sandbox: {told[0]}").get_attribute("class") or "")


def test_the_page_can_be_installed(place: Place, site: Site, page: Page) -> None:
    """As an application with a window of its own, also on a phone that reaches this server through a tunnel."""
    page.goto(site.url)
    page.locator(HOME).wait_for()
    tools = page.context.new_cdp_session(page)
    manifest = tools.send("Page.getAppManifest")
    assert (manifest["errors"], manifest["manifest"]["scope"]) == ([], site.url.partition("#")[0].partition("?")[0])
    (only,) = tools.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert only["errorId"] == "in-incognito", "as is every page of these tests"


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


@pytest.mark.slow
@pytest.mark.deep
def test_a_repository_is_closed_at_first(project: Place, site: Site, page: Page) -> None:
    staged(project, f"echo two >> src/a.py; {GIT} commit -qam second")
    review(page, site)
    page.get_by_role("button", name="Tree", exact=True).click()
    page.get_by_role("heading", level=2, name="src/a.py").wait_for()
    assert page.get_by_role("treeitem").count() == 3, "the repository, src and the file"
    page.get_by_role("treeitem").filter(has_text=".git").locator(".name").click()
    page.get_by_role("treeitem").filter(has_text="refs/heads").first.wait_for()


@pytest.mark.slow
@pytest.mark.deep
def test_more_needs_than_are_shown_are_counted(project: Place, site: Site, page: Page) -> None:
    for number in range(10):
        mudroom(project, "exec", "--fork", f"f{number}", "--", "sh", "-c", f"echo {number} > n")
    page.goto(site.url)
    page.get_by_text("And 2 more, in the projects below.").wait_for()


@pytest.mark.slow
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


@pytest.mark.deep
@pytest.mark.usefixtures("own_site")
def test_what_needs_the_user_stands_first(place: Place, site: Site, page: Page) -> None:
    place.write("a.txt", "one\n")
    mudroom(place, "vault", "init")
    page.goto(site.url)
    page.get_by_text("Nothing waits for you").wait_for()
    staged(place, "echo two >> a.txt; echo n > new.txt", "done")
    staged(place, "echo theirs > a.txt", "clash")
    place.write("a.txt", "ours, and longer\n")
    page.goto("about:blank")
    page.goto(site.url)
    needs = page.get_by_role("region", name="Needs you")
    rows = needs.get_by_role("listitem")
    rows.nth(1).wait_for()
    texts = rows.all_inner_texts()
    assert ["conflict" in texts[0], "in conflict with the project" in texts[0]] == [True, True], texts
    row, tag = (rows.nth(0).bounding_box(), rows.nth(0).get_by_text("conflict", exact=True).bounding_box())
    assert row and tag and tag["x"] - row["x"] >= 8 and tag["y"] > row["y"] + 2, "text does not touch the frame"
    heading = page.get_by_role("heading", name="All projects").bounding_box()
    assert heading and heading["height"] > 10, "it is there for the eye, too"
    headings = page.get_by_role("heading").all_inner_texts()
    assert headings.index("Needs you") < headings.index("All projects")
    link = needs.get_by_role("link", name="Decide").first
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/conflicts")


@pytest.mark.deep
@pytest.mark.usefixtures("own_site")
def test_what_runs_says_its_level_and_what_it_costs(place: Place, site: Site, page: Page) -> None:
    place.write("a.txt", "one\n")
    mudroom(place, "exec", "--fork", "dev", "--agent", "coder", "--background", "--", "sleep", "300")
    try:
        page.goto(site.url)
        running = page.get_by_role("region", name="Running")
        running.get_by_text("sleep 300").wait_for()
        running.get_by_text("s CPU").wait_for()
        assert running.get_by_text("level 1").count() == 1
        assert running.get_by_role("link", name="Watch dev").count() == 1
    finally:
        mudroom(place, "ps", "--end", "--all")


@pytest.mark.deep
@pytest.mark.usefixtures("own_site")
def test_a_look_cannot_be_applied_until_it_is_a_review(place: Place, site: Site, page: Page) -> None:
    place.write("a.txt", "one\n")
    mudroom(place, "exec", "--fork", "dev", "--", "sh", "-c", "echo two >> a.txt")
    mudroom(place, "exec", "--fork", "dev", "--background", "--", "sleep", "300")
    page.goto(f"{site.url}#/p/{site.project}/f/dev")
    banner = page.get_by_text("is running (sleep 300): this is a look, not a review")
    banner.wait_for()
    apply = page.get_by_role("button", name="Apply")
    apply.wait_for()
    assert apply.is_disabled()
    mudroom(place, "ps", "--end", "--all")
    page.reload()
    apply.wait_for()
    page.wait_for_function("() => !document.body.innerText.includes('this is a look')")
    assert apply.is_enabled()
    apply.click()
    page.get_by_text("1 written").wait_for()
    assert (place.project / "a.txt").read_text() == "one\ntwo\n"
