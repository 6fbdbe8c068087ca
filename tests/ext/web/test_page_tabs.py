"""Many windows of one browser, which opens no more than six connections to a host (HTTP/1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import HOME, PATIENCE, Site, another_login, mudroom, serving, staged, watch

from clients import free_port
from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.usefixtures("own_site")]


def test_eight_windows_of_one_browser(place: Place, site: Site, page: Page) -> None:
    """All of them are let in, and all of them are told; those that stay are told, too, when the first has gone."""
    wrong: list[str] = []
    pages = [page]
    for _number in range(7):
        another = page.context.new_page()
        another.set_default_timeout(PATIENCE)
        watch(another, site.url, wrong)
        another.goto(site.url)
        another.wait_for_selector(HOME)
        pages.append(another)
    staged(place, "echo 1 > a.txt")
    for each in pages:
        each.get_by_role("link", name=str(place.project)).wait_for()
    page.close()
    staged(place, "echo 2 > b.txt", "try-2")
    for each in pages[1:]:
        each.get_by_text("2 forks").wait_for()
    assert wrong == []


def window(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector(HOME)
    return page


@pytest.mark.parametrize("stays", [True, False])
def test_a_second_login_and_a_restart(place: Place, chromium: Browser, stays: bool) -> None:
    """The first window has the key of the second login then, whether that one's window is still there or not."""
    context = chromium.new_context(reduced_motion="reduce")
    staged(place, "echo 1 > one")
    port = str(free_port())
    with serving(place, "--port", port) as site:
        first = window(context, site.told["login"])
        second = window(context, another_login(place))
        if not stays:
            second.close()
    first.get_by_text("The server does not answer").wait_for()
    with serving(place, "--port", port):
        first.get_by_text("The server does not answer").wait_for(state="hidden")
        staged(place, "echo 2 > two", "try-2")
        for page in context.pages:
            page.get_by_text("2 forks").wait_for()
        context.close()


def test_windows_that_are_logged_out(place: Place, site: Site, page: Page) -> None:
    """Both are told so, and are let in again by a login in a third."""
    page.wait_for_selector(HOME)
    second = window(page.context, site.url)
    mudroom(place, "serve", "--forget")
    staged(place, "echo 1 > one")  # the next that is told is not told any more
    for each in (page, second):
        each.get_by_role("heading", name="This session of the page is over").wait_for()
    third = window(page.context, another_login(place))
    staged(place, "echo 2 > two", "try-2")
    for each in (page, second, third):
        each.get_by_text("2 forks").wait_for()
