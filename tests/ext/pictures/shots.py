"""The pictures: what is open, how wide, in which colours, and what was done first."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from browser import MUDROOM, environment

from pictures.scene import serve

if TYPE_CHECKING:
    from browser import Site
    from playwright.sync_api import Browser, Page

    from conftest import Place

FORK = "decimal-money"


class Shot(NamedTuple):
    name: str
    view: str
    """Below the fork; empty: the project."""
    scheme: str = "light"
    width: int = 1280
    height: int = 800
    first: Callable[[Page], None] = lambda _page: None
    """What is done on the page before."""


def open_file(name: str) -> Callable[[Page], None]:
    def do(page: Page) -> None:
        page.get_by_role("treeitem").filter(has_text=name).locator(".name").click()
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


SHOTS = (
    Shot("project", ""),
    Shot("review-light", "review", first=open_file("invoice.py")),
    Shot("review-dark", "review", "dark", first=side_by_side),
    Shot("file-phone", "review", "dark", 390, first=open_file("invoice.py")),
    Shot("conflict", "conflicts"),
    Shot("question", "review", "dark", first=ask),
    Shot("checkpoints", "watch", first=timeline),
    Shot("watch", "watch", "dark"),
)
_QUESTION = "question"
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
    agent = _agent(place) if shot.name == _QUESTION else None
    page.goto(f"{site.url}#/p/{site.project}" + (f"/f/{FORK}/{shot.view}" if shot.view else ""))
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
