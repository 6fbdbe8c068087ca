"""The pictures: what is open, how wide, in which colours, and what was done first."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from browser import MUDROOM, environment

from pictures.scene import begin_round, clash, end_round, serve

if TYPE_CHECKING:
    from browser import Site
    from playwright.sync_api import Browser, Page

    from conftest import Place

FORK, ROUND = "decimal-money", "cart-counts"


class Shot(NamedTuple):
    name: str
    view: str
    """Below the fork; empty: the project."""
    scheme: str = "light"
    width: int = 1280
    height: int = 800
    first: Callable[[Page], None] = lambda _page: None
    """What is done on the page before."""
    fork: str = FORK
    """Empty: the first view."""
    scene: Callable[[Place], None] = lambda _place: None
    """What has happened by then."""


def open_file(name: str) -> Callable[[Page], None]:
    def do(page: Page) -> None:
        page.get_by_role("treeitem").locator(f'.name[title="{name}"]').click()
        page.get_by_role("heading", level=2, name=name).wait_for()
        page.locator(".diff").first.wait_for()

    return do


def side_by_side(page: Page) -> None:
    open_file("invoice.py")(page)
    page.get_by_role("button", name="Side by side").click()


def timeline(page: Page) -> None:
    page.get_by_role("link", name="Checkpoints").or_(page.get_by_role("tab", name="Checkpoints")).first.click()


def ask(page: Page) -> None:
    page.locator(".ask").first.wait_for()


def remark(page: Page) -> None:
    open_file("cart.py")(page)
    page.get_by_role("button", name="Write a remark about line 3", exact=True).last.click()
    page.get_by_role("textbox", name="Remark about line 3", exact=True).fill("Where is the discount? And its test?")
    page.get_by_role("button", name="Suggest lines").click()
    lines = "    return sum(item.price * item.count for item in items) - discount"
    page.get_by_role("textbox", name="Lines instead of line 3").fill(lines)
    page.get_by_role("button", name="Add the remark").click()
    page.get_by_role("region", name="Remark r1: not sent").first.wait_for()


def send(page: Page) -> None:
    page.locator("details.remarks > summary").click()
    page.get_by_role("button", name="Send 1 remark").click()
    page.get_by_label("What is sent").wait_for()


def only_new(page: Page) -> None:
    page.locator("details.remarks > summary").click()
    page.get_by_role("checkbox", name="Only what is new since round 1").check()
    page.locator("details.remarks > summary").click()
    open_file("cart.py")(page)


def put_off(page: Page) -> None:
    ask(page)
    page.get_by_role("button", name="Later").click()


def land(page: Page) -> None:
    page.get_by_role("treeitem").filter(has_text="checks.yml").get_by_role("checkbox").uncheck()
    page.get_by_role("button", name="Apply 2 of 3").click()
    page.get_by_text("Applied:").wait_for()


SHOTS = (
    Shot("project", ""),
    Shot("review-light", "review", first=open_file("invoice.py")),
    Shot("review-dark", "review", "dark", first=side_by_side),
    Shot("file-phone", "review", "dark", 390, first=open_file("invoice.py")),
    Shot("conflict", "conflicts"),
    Shot("question", "review", "dark", first=ask),
    Shot("checkpoints", "watch", first=timeline),
    Shot("watch", "watch", "dark"),
    Shot("round-risk", "review", height=620, first=open_file("tests/test_cart.py"), fork=ROUND, scene=begin_round),
    Shot("round-remark", "review", "dark", height=620, first=remark, fork=ROUND),
    Shot("round-sent", "review", height=620, first=send, fork=ROUND),
    Shot("round-second", "review", height=620, first=only_new, fork=ROUND, scene=end_round),
    Shot("queue", "", height=620, fork="", scene=clash, first=put_off),
    Shot("queue-phone", "", "dark", 320, 640, fork="", first=put_off),
    Shot("round-landed", "review", height=620, first=land, fork=ROUND),
)
_ASKED = ("question", "queue", "queue-phone")
_LOGGED_IN: list[Any] = []


def take(shot: Shot, place: Place, site: Site, browser: Browser, where: Path) -> None:
    options: dict[str, Any] = {
        "viewport": {"width": shot.width, "height": shot.height},
        "color_scheme": shot.scheme,
        "reduced_motion": "reduce",
    }
    context = browser.new_context(**options, **({"storage_state": _LOGGED_IN[0]} if _LOGGED_IN else {}))
    page = context.new_page()
    page.goto(site.url if _LOGGED_IN else site.told["login"])
    page.wait_for_selector("main")
    _LOGGED_IN[:] = [context.storage_state()]
    if shot.name == "watch":
        serve(place)
    shot.scene(place)
    agent = _agent(place) if shot.name in _ASKED else None
    below = f"/f/{shot.fork}/{shot.view}" if shot.view else ""
    page.goto(f"{site.url}#/p/{site.project}{below}" if shot.fork else site.url)
    page.locator("main:not([aria-busy=true]) h1").first.wait_for()
    shot.first(page)
    page.wait_for_timeout(900)  # colours come after the text
    page.screenshot(path=where / f"{shot.name}.png")
    context.close()
    if agent is not None:
        agent.send_signal(signal.SIGINT)  # the question goes with it
        agent.wait()


def _agent(place: Place) -> subprocess.Popen[bytes]:
    """One that wants what has to be approved."""
    words = ["exec", "--fork", FORK, "--agent", "coder", "--ask", "queue", "--", "git", "push", "origin", "main"]
    return subprocess.Popen(
        [*MUDROOM, *words],
        cwd=place.project,
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
