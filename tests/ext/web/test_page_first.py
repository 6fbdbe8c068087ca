"""The page in a real browser: the first view, and a change that a real command has staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import HOME, Site, staged

from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


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
