"""Throwing a fork away from its card: what was looked at, and nothing that has come since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, mudroom, staged

from conftest import Place
from mudroom.vault.forks.review import of_look

pytestmark = pytest.mark.deep

if TYPE_CHECKING:
    from playwright.sync_api import Page


def row(site: Site, name: str = "try-1") -> dict[str, object]:
    forks = site.get(f"/projects/{site.project}")["forks"]
    found: list[dict[str, object]] = [one for one in forks if one["name"] == name]
    return found[0]


def test_a_list_has_what_a_discard_is_held_to(place: Place, site: Site) -> None:
    """Of a fork that holds nothing yet, too."""
    mudroom(place, "fork", "new", "try-1")
    empty = row(site)["fingerprint"]
    staged(place, "echo x > f")
    first = row(site)["fingerprint"]
    address = f"/projects/{site.project}/forks/try-1"
    seen = site.get(address + "/changes")["fingerprint"]
    assert first == of_look(seen) != empty
    for reviewed in (empty, "0" * 40, seen[:-1] + "-"):
        status, problem = site.ask("DELETE", f"{address}?reviewed={reviewed}")
        assert (status, problem["code"]) == (409, "moved")
    assert site.ask("DELETE", f"{address}?reviewed={first}")[0] == 200
    mudroom(place, "fork", "new", "try-1")
    assert site.ask("DELETE", f"{address}?reviewed={row(site)['fingerprint']}")[0] == 200
    staged(place, "echo x > f")
    seen = site.get(address + "/changes")["fingerprint"]
    assert site.ask("DELETE", f"{address}?reviewed={seen}")[0] == 200


@pytest.mark.slow
def test_what_came_since_is_told_and_asked_about(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo x > f")
    page.goto(f"{site.url}#/p/{site.project}")
    page.get_by_role("button", name="Discard try-1").click()
    asked = page.get_by_role("dialog", name="Discard this fork?")
    asked.get_by_text("1 changed file that is in no project").wait_for()
    staged(place, "echo y > g; echo z > h")
    asked.get_by_role("button", name="Discard").click()
    again = page.get_by_role("dialog", name="Discard it as it is now?")
    again.get_by_text("nothing was discarded: 1 changed file then, 3 changed files now.").wait_for()
    assert again.get_by_role("link", name="Review it").count() == 1
    assert row(site)["name"] == "try-1"
    again.get_by_role("button", name="Cancel").click()
    page.get_by_role("listitem").get_by_text("3 changed files").wait_for()
    page.get_by_role("button", name="Discard try-1").click()
    asked.get_by_text("3 changed files that are in no project").wait_for()
    asked.get_by_role("button", name="Discard").click()
    page.get_by_text("try-1 was discarded").wait_for()
    assert site.get(f"/projects/{site.project}")["forks"] == []


@pytest.mark.slow
def test_the_same_in_a_review(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo x > f")
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_role("button", name="Discard").click()
    staged(place, "echo y > g")
    page.get_by_role("dialog", name="Discard this fork?").get_by_role("button", name="Discard").click()
    again = page.get_by_role("dialog", name="Discard it as it is now?")
    again.get_by_text("1 changed file then, 2 changed files now.").wait_for()
    again.get_by_role("button", name="Discard").click()
    page.get_by_role("heading", name="Forks").wait_for()
    assert site.get(f"/projects/{site.project}")["forks"] == []


@pytest.mark.slow
def test_what_runs_is_ended_and_what_it_has_changed_is_asked_about(place: Place, site: Site, page: Page) -> None:
    mudroom(place, "fork", "new", "try-1")
    words = ["sh", "-c", "echo precious > f; echo ready; exec sleep 60"]
    assert site.ask("POST", f"/projects/{site.project}/forks/try-1/commands", {"command": words})[0] == 201
    page.goto(site.address("f", "try-1", "watch"))
    page.get_by_label("Output: stdout").get_by_text("ready").wait_for()
    page.goto(f"{site.url}#/p/{site.project}")
    page.get_by_role("listitem").get_by_text("running").wait_for()
    page.get_by_role("button", name="Discard try-1").click()
    asked = page.get_by_role("dialog", name="Discard this fork?")
    asked.get_by_text("nothing is changed in it, and what runs in it is ended").wait_for()
    asked.get_by_role("button", name="Discard").click()
    again = page.get_by_role("dialog", name="Discard it as it is now?")
    again.get_by_text("nothing was discarded: 0 changed files then, 1 changed file now.").wait_for()
    assert row(site)["state"] == "idle"
    again.get_by_role("button", name="Discard").click()
    page.get_by_text("try-1 was discarded").wait_for()
