"""Held pushes in the reviews of the page and the terminal: shown, chosen, bound to what was shown, sent."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")
pytest.importorskip("starlette", reason="the extra web")

from browser import Site, mudroom, staged
from driving import Driver, drive
from forge import Forge
from pageside import PageSide
from yard import COMMIT, Yard, policy
from yard import yard as yard

from conftest import Place
from mudroom.core.network.host_rules import parse_rule
from mudroom.errors import ForkMoved
from mudroom.ext.effects.store import effects, remove

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.both_users]
PUSH = COMMIT + "git push -q origin HEAD:main; "


def remote(yard: Yard) -> str:
    return f"git remote set-url origin {yard.url()}; "


class YardPlace(NamedTuple):
    """Where a page or a review finds the yard's project."""

    root: Path
    project: Path
    home: Path
    state: Path


def place_of(yard: Yard, *more: str) -> Any:
    """``more``: what is held, too, and what may be private, too."""
    policy(yard, *more)
    return YardPlace(yard.root, yard.project, yard.root / "home", yard.root / "state")


def test_an_apply_sends_what_was_shown_and_no_other_push_of_its_name(yard: Yard) -> None:
    before = yard.forge.refs()
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        (shown,) = session.changes.pushes("f")
        place = session.vault.fork("f").path
        remove(place, effects(place)[0])
        yard.run(session, "git push -q origin HEAD:evil")
        (other,) = session.changes.pushes("f")
        assert (other.name, other.bound != shown.bound) == (shown.name, True)
        with pytest.raises(ForkMoved, match="push:1 in the fork is not what was reviewed; nothing was applied"):
            session.changes.apply("f", pushes=[shown.bound])
        assert (yard.project / "a").read_text() == "one\n"
        assert yard.forge.refs() == before
        assert session.changes.apply("f", pushes=[other.bound]).applied.pushes[0].state == "sent"


def test_the_page_shows_pushes_and_sends_the_chosen_ones(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH + "git push -q origin HEAD:refs/heads/topic")
    page = PageSide(place_of(yard))
    path = f"{page.project}/forks/f"
    shown = page.get(path + "/changes")
    first, second = shown["pushes"]
    assert (first["label"], first["remote"], first["state"]) == ("push:1", yard.url(), "held")
    (ref,) = first["refs"]
    assert (ref["ref"], ref["verb"], ref["flags"]) == ("refs/heads/main", "moved", ["protected name"])
    assert [one["subject"] for one in ref["commits"]] == ["second"]
    landed = page.landed(path + "/apply", {"reviewed": shown["fingerprint"], "pushes": [first["name"]]})
    assert (yard.project / "a").read_text() == "one\ntwo\n"
    told = [(one["path"], one["text"]) for one in landed["remarks"] if one["path"].startswith("push:")]
    assert told == [
        ("push:1", f"pushed: refs/heads/main to {yard.url()}"),
        ("push:2", "is not sent: mudroom apply f push:2 does"),
    ]
    assert set(yard.forge.refs()) == {"refs/heads/main"}
    shown = page.get(path + "/changes")
    assert [one["label"] for one in shown["pushes"]] == ["push:2"]
    request = {"reviewed": shown["fingerprint"], "files": [], "pushes": [second["name"]]}
    page.landed(path + "/apply", request)
    assert set(yard.forge.refs()) == {"refs/heads/main", "refs/heads/topic"}
    assert page.job(path + "/apply", request)["problem"]["error"] == "f has no push:2"


def test_the_page_applies_no_file_with_pushes_alone(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
    page = PageSide(place_of(yard))
    path = f"{page.project}/forks/f"
    shown = page.get(path + "/changes")
    names = [one["name"] for one in shown["pushes"]]
    page.landed(path + "/apply", {"reviewed": shown["fingerprint"], "files": [], "pushes": names})
    assert (yard.project / "a").read_text() == "one\n"
    assert page.get(path + "/changes")["pushes"] == []


def test_the_page_shows_a_request_with_its_body_and_why_it_is_not_sent(yard: Yard) -> None:
    url = f"api.example:{yard.api_port}"
    with yard.session(parse_rule(f"{url} PUT", "hold", "the test", private=True)) as session:
        yard.run(session, f"curl -s -X PUT --json '{{\"b\": 2}}' https://{url}/items/new")
    page = PageSide(place_of(yard, f"{url} PUT", url))
    path = f"{page.project}/forks/f"
    shown = page.get(path + "/changes")
    (row,) = shown["pushes"]
    assert (row["label"], row["remote"], row["refs"][0]["ref"]) == ("request:1", f"https://{url}", "PUT /items/new")
    assert row["details"][-1] == '{"b": 2}' and "content-type: application/json" in row["details"]
    request = {"reviewed": shown["fingerprint"], "files": [], "pushes": [row["name"]]}
    job = page.job(path + "/apply", request)
    assert job["landed"]["pushes_left"] and "certificate is refused" in job["landed"]["remarks"][0]["text"], job
    assert not yard.api.effects()


@pytest.mark.parametrize(("key", "sent"), [("y", True), ("f", False)])
def test_the_terminal_s_review_asks_about_pushes(yard: Yard, key: str, sent: bool) -> None:
    before = yard.forge.refs()
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)

        async def script(driver: Driver) -> None:
            assert "1 held effect: a sends them, e shows, chooses and drops" in str(
                driver.review.query("#banner").first().render()
            )
            asked = await driver.ask("a", "Apply to")
            assert "sent after that, with your credential:" in asked
            assert f"push:1  push {yard.url()} refs/heads/main: 1 commit, +1 -0, protected name" in asked
            await driver.press(key)
            await driver.until(lambda: driver.dialog().startswith("Applied"))
            told = f"pushed: refs/heads/main to {yard.url()}" if sent else "is not sent: mudroom apply f push:1 does"
            assert told in driver.dialog()

        app = drive(place_of(yard), "f", script, session=session)
        assert (app.code, app.applied) == (0, True)
        assert (yard.project / "a").read_text() == "one\ntwo\n"
        assert (yard.forge.refs() != before) == sent


def test_the_terminal_s_review_sends_pushes_without_files(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)

        async def script(driver: Driver) -> None:
            await driver.to_file(b"a")
            await driver.press("space")
            await driver.until(lambda: driver.review.selection.choice() is None)
            asked = await driver.ask("a", "Apply to")
            assert "0 of " in asked and "push:1" in asked
            await driver.press("c", "f")  # neither is offered
            await driver.press("y")
            await driver.until(lambda: driver.dialog().startswith("Applied"))

        drive(place_of(yard), "f", script, session=session)
        assert (yard.project / "a").read_text() == "one\n"
        assert session.changes.pushes("f") == []


def test_the_terminal_s_review_chooses_effects_and_drops_one(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH + "git push -q origin HEAD:refs/heads/topic; git push -q origin HEAD:x/y")

        async def script(driver: Driver) -> None:
            shown = await driver.ask("e", "Held effects")
            assert shown.count("[x]") == 3 and "after push:1, push:2" in shown
            await driver.press("j", "space")
            await driver.until(lambda: driver.dialog().count("[ ]") == 2)  # with the one that needs it
            await driver.press("k", "enter")
            await driver.until(lambda: "+two" in driver.dialog())
            assert driver.dialog().startswith("push:1")
            await driver.press("escape")
            await driver.until(lambda: "Held effects" in driver.dialog())
            await driver.press("j", "x")
            await driver.until(lambda: driver.dialog().startswith("Drop push:2?"))
            assert "The server may refuse what was made after it: push:3" in driver.dialog()
            await driver.press("y")
            await driver.until(lambda: "push:2" not in driver.dialog() and "Held effects" in driver.dialog())
            await driver.press("escape")
            asked = await driver.ask("a", "Apply to")
            assert "push:1  push" in asked and "not sent, and stays in the fork: push:3" in asked
            await driver.press("y")
            await driver.until(lambda: driver.dialog().startswith("Applied"))
            await driver.press("u")
            await driver.until(lambda: driver.dialog().startswith("Take the last apply back"))
            assert "refs/heads/main is moved back, unless somebody has moved it since" in driver.dialog()

        drive(place_of(yard), "f", script, session=session)
        assert [row.name for row in session.changes.pushes("f")] == ["push:3"]
    assert yard.forge.pushes() == 1


def test_the_page_drops_an_effect_as_it_was_shown_and_tells_the_way_back(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH + "git push -q origin HEAD:refs/heads/topic")
    page = PageSide(place_of(yard))
    path = f"{page.project}/forks/f"
    first, second = page.get(path + "/changes")["pushes"]
    assert (first["needs"], second["needs"]) == ([], ["push:1"])
    assert page.ask("DELETE", f"{path}/effects/push:2@{'0' * 64}", status=409)["code"] == "moved"
    page.ask("DELETE", f"{path}/effects/{second['name']}")
    shown = page.get(path + "/changes")
    assert [one["label"] for one in shown["pushes"]] == ["push:1"]
    page.landed(path + "/apply", {"reviewed": shown["fingerprint"], "files": [], "pushes": [first["name"]]})
    (applied,) = page.get(page.project)["applies"]
    way = "refs/heads/main is moved back, unless somebody has moved it since"
    assert applied["sent"] == [f"push:1 refs/heads/main to {yard.url()}: {way}"]


def test_the_command_line_shows_one_effect_with_its_differences(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH + "git push -q origin HEAD:refs/heads/topic")
    shown = mudroom(place_of(yard), "diff", "f", "push:1")
    assert shown.startswith(f"push:1  push {yard.url()} refs/heads/main: 1 commit") and "\n+two\n" in shown
    assert "push:2" not in shown
    assert "    after push:1\n" in mudroom(place_of(yard), "diff", "f", "push:2")
    mudroom(place_of(yard), "diff", "f", "push:3", expected=125)


@pytest.fixture
def loopback(place: Place) -> Iterator[tuple[Forge, int]]:
    """A forge that the gate reaches on this machine's loopback."""
    forge = Forge(place.root / "forge")
    forge.repository()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk(client: socket.socket) -> None:
            with client, suppress(ConnectionError):
                forge.talk(client)

        def serve() -> None:
            while True:
                try:
                    client, _address = listener.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(client,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield forge, listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.deep
@pytest.mark.slow
def test_a_browser_sends_one_push_and_leaves_another(
    place: Place, loopback: tuple[Forge, int], page: Page, site: Site
) -> None:
    forge, port = loopback
    url = f"http://127.0.0.1:{port}/team/app.git"
    place.write(".mudroom/policy.yaml", f"network:\n  hold: ['localhost:{port}']\n")
    begin = f"git init -q -b main; git config user.name A; git config user.email a@b; git remote add origin {url}; "
    staged(place, f"{begin}echo one > a; git add a; git commit -qm first; git push -q origin main main:topic")
    staged(place, "git commit -q --allow-empty -m second; git push -q origin main; git push -q origin main:o")
    page.goto(site.address("f", "try-1", "review"))
    region = page.get_by_role("region", name="Effects that wait")
    region.get_by_text("3 effects wait").wait_for()
    region.get_by_role("button", name="Drop push:3").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    region.get_by_text("2 effects wait").wait_for()
    region.get_by_role("checkbox", name="Send push:1").uncheck()
    assert not region.get_by_role("checkbox", name="Send push:2").is_checked(), "it needs push:1"
    region.get_by_role("checkbox", name="Send push:2").check()
    region.get_by_role("checkbox", name=f"Send push:2: refs/heads/main to {url} (protected name)").uncheck()
    page.get_by_role("button", name="send 1 effect").click()
    asked = page.get_by_role("dialog")
    asked.get_by_text("Sent, as you").wait_for()
    assert f"refs/heads/main to {url} (protected name)\nrefs/heads/topic to {url}\n" in asked.inner_text()
    asked.get_by_role("button", name="Apply").click()
    page.get_by_text(f"pushed: refs/heads/main, refs/heads/topic to {url}").wait_for()
    page.get_by_text("push:2 is not sent").wait_for()
    assert set(forge.refs()) == {"refs/heads/main", "refs/heads/topic"}
    page.get_by_role("button", name="Undo").click()
    asked.get_by_text("refs/heads/main is removed, refs/heads/topic is removed, unless somebody").wait_for()
    asked.get_by_role("button", name="Undo").click()
    page.locator(".banner.warn").get_by_text(
        re.compile(r"push:1 .*: not taken back: refs/heads/main: ")
    ).wait_for()  # git keeps a server's HEAD
    assert set(forge.refs()) == {"refs/heads/main"}
