"""Watching in a real browser: a command's output as it comes, its end, the way back to a checkpoint, the journal; and a
new session from the folder to its first command, by the keyboard."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from browser import Site, comes, mudroom, staged

from conftest import Place

pytestmark = pytest.mark.deep

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

TRICKS = (
    r"printf '<img src=x onerror=alert(1)>\n\033[1;31mred\033[0m \342\200\256 \377\033]0;title\007.\n10%%\r99%%\n';"
)
REACH = 'import urllib.request as r; r.urlopen("http://no.example/")'


@pytest.fixture(scope="module")
def shared_words(shared_root: Path) -> list[str]:
    """A root below which there is something to choose."""
    code = shared_root / "home/code"
    (code / "shop/src").mkdir(parents=True)
    (code / "shop/package.json").write_text("{}")
    (code / "shop/.env").write_text("KEY=1")
    (code / "out").symlink_to("/")
    return ["--root", str(code)]


@pytest.fixture(autouse=True)
def something(place: Place) -> None:
    place.write("a.txt", "one\n")


def test_a_command_is_started_watched_and_ended(place: Place, site: Site, page: Page) -> None:
    staged(place, "true")
    page.goto(site.address("f", "try-1", "watch"))
    page.get_by_label("Run a command in").fill(TRICKS + " echo ready; read line < fifo || exec sleep 60")
    page.keyboard.press("Enter")
    output = page.get_by_label("Output: stdout")
    output.get_by_text("ready").wait_for()
    text = output.inner_text()
    assert "<img src=x onerror=alert(1)>" in text
    assert "red \\u{202e} \ufffd." in text
    assert "99%" in text
    assert "10%" not in text
    assert output.locator("img").count() == 0
    assert output.locator(".sgr-31").inner_text() == "red"
    page.get_by_role("button", name="End…").click()
    page.get_by_role("button", name="End it").click()
    page.get_by_text("exit 143").wait_for()
    assert output.get_by_text("ready").is_visible()


def test_back_to_a_checkpoint_and_forth_again(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo kept > kept.txt")
    mudroom(place, "checkpoint", "green", "--fork", "try-1")
    staged(place, "echo late > '<b>late.txt'; echo 2 >> kept.txt")
    page.goto(site.address("f", "try-1", "watch"))
    page.get_by_role("tab", name="Checkpoints").click()
    green = page.locator(".point", has_text="green")
    green.get_by_role("button", name="Roll back to here…").click()
    preview = page.get_by_role("group", name="Roll back to green")
    preview.get_by_text("2 files would change").wait_for()
    assert preview.locator("tr", has_text="<b>late.txt").inner_text().startswith("goes away")
    staged(place, "echo unseen > unseen.txt")  # meanwhile
    preview.get_by_text("3 files would change").wait_for()
    preview.get_by_role("button", name="Roll back", exact=True).click()
    page.get_by_text("The fork holds again what it held at").wait_for()
    green.get_by_text("here now").wait_for()
    assert not site.get(f"/projects/{site.project}/forks/try-1/changes")["rows"][1:]
    page.get_by_role("button", name="Undo by checkpoint").click()
    page.get_by_role("group", name="Roll back to rollback-1").get_by_role(
        "button", name="Roll back", exact=True
    ).click()
    page.locator(".point", has_text="rollback-1").get_by_text("here now").wait_for()
    assert len(site.get(f"/projects/{site.project}/forks/try-1/changes")["rows"]) == 3


def test_the_journal_is_searched_and_grows_and_is_as_it_was_written(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo '<b>needle</b>'")
    staged(place, "echo hay")
    page.goto(site.address("f", "try-1", "watch"))
    page.get_by_role("tab", name="Journal").click()
    events = page.locator(".event")
    events.get_by_text("echo hay").wait_for()
    page.get_by_label("Search the journal").fill("needle")
    events.get_by_text("echo hay").wait_for(state="detached")
    comes(page, events.count, 1)
    assert page.locator("main b", has_text="needle").count() == 0
    staged(place, "echo another needle")
    events.get_by_text("another needle").wait_for()
    page.get_by_role("button", name="Verify the journal").click()
    page.get_by_text("Intact: ").wait_for()
    events.first.get_by_role("button").click()
    page.locator(".event .data", has_text='"exit_code": 0').wait_for()


def test_what_a_command_could_not_reach(place: Place, site: Site, page: Page) -> None:
    place.write(".mudroom/policy.yaml", "network: {deny: [no.example]}\n")  # nobody is asked, so nobody is waited for
    staged(place, f"{sys.executable} -c '{REACH}' || true")
    page.goto(site.address("f", "try-1", "watch"))
    page.get_by_role("tab", name="Network").click()
    row = page.locator("table.flows tbody tr").first
    row.wait_for()
    assert "refused" in row.inner_text()
    assert "no.example" in row.inner_text()
    page.get_by_role("tab", name="Network").press("ArrowRight")
    page.get_by_role("tab", name="Journal", selected=True).wait_for()
    page.keyboard.press("[")
    page.get_by_role("tab", name="Network", selected=True).wait_for()
    page.keyboard.press("]")
    page.get_by_role("tab", name="Journal", selected=True).press("ArrowRight")
    page.get_by_text("On disk: ").wait_for()


def test_a_new_session_by_the_keyboard(site: Site, page: Page) -> None:
    page.goto(site.url + "#/new")
    folders = page.get_by_role("listbox", name="Folders")
    folders.get_by_text("a symbolic link, which is not followed").wait_for()
    folders.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    folders.get_by_role("option", name="src/").wait_for()
    page.keyboard.press("ArrowLeft")
    folders.get_by_role("option", name="shop/").wait_for()
    page.keyboard.press("End")
    page.keyboard.press("Space")
    page.get_by_text("1 file shown empty to commands: .env").wait_for()
    page.get_by_text("Sandboxed: safe to edit").wait_for()
    assert site.get("/projects") == []
    page.get_by_label("Name of the fork").fill("../x")
    page.get_by_label("First command").fill("echo from the first command; cat .env | wc -c")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("alert").get_by_text("cannot be the name of a fork").wait_for()
    page.get_by_label("Name of the fork").fill("first-try")
    page.get_by_role("button", name="Start").click()
    page.get_by_label("Output: stdout").get_by_text("from the first command").wait_for()
    comes(page, lambda: page.get_by_label("Output: stdout").inner_text().split("\n")[1], "0")
