"""Somebody who is quicker than a frame: what is there can be used, and is not taken out of his hands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Site, staged

from conftest import Place
from test_decide_page import HOST, card, queue

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from mudroom.vault.approvals.queue import Queue

__all__ = ["queue"]
pytestmark = [pytest.mark.deep, pytest.mark.slow]
AT_ONCE = """([css, act]) => {
  const acts = {
    key: (one) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true })),
    focus: (one) => one.focus(),
    later: (one) => one.closest("aside").querySelector("header button").click(),
  };
  let done = false;
  new MutationObserver(() => {
    const one = document.querySelector(css);
    if (!one || done) return;
    done = true;
    acts[act](one);
  }).observe(document.body, { childList: true, subtree: true, attributes: true });
}"""
"""Does it when that is there, before anything is drawn: a MutationObserver is called by a microtask (DOM, 4.3)."""

DRAWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true), 200)))"
"""And what is done after that has been done, too."""


def test_a_key_counts_as_soon_as_its_list_is_there(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo 1 > a; echo 1 > b")
    page.evaluate(AT_ONCE, ["[role=treeitem]", "key"])
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_role("heading", level=2, name="b", exact=True).wait_for()


def test_the_keyboard_stays_where_somebody_has_put_it(place: Place, site: Site, page: Page) -> None:
    """A new view has the keyboard at once, or not at all."""
    page.evaluate(AT_ONCE, ["[href='#/']:not([aria-current])", "focus"])
    page.goto(site.url + "#/new")
    page.get_by_role("heading", name="New session").wait_for()
    page.wait_for_function(DRAWN)
    assert page.evaluate("document.activeElement.className") == "brand"


def test_what_is_put_off_as_soon_as_it_is_there_stays_so(queue: Queue, page: Page) -> None:
    page.evaluate(AT_ONCE, ["#decide:not([hidden]) .ask", "later"])
    with queue.put(HOST, 60):
        card(page, HOST.fingerprint).wait_for(state="attached")
        page.wait_for_function(DRAWN)
        assert page.locator("#decide").is_hidden()


def test_the_keyboard_is_not_left_with_what_is_out_of_use(site: Site, page: Page) -> None:
    """Though nothing else changes: a browser takes it away after the frame in which a page could look (HTML, 6.6.4)."""
    page.evaluate("() => { const one = document.querySelector('header .asked'); one.focus(); one.disabled = true; }")
    page.wait_for_function("() => document.activeElement.matches('body :not(:disabled)')")
