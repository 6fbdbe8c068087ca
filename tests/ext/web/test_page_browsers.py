"""The page in each browser: Chromium (of Chrome and Edge), Firefox, and WebKit (GTK), the engine of Safari."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from browser import serving
from otherbrowsers import Window, chromium, firefox, webkit
from pagestory import find, lose, tell

from clients import free_port
from conftest import Place

pytestmark = [pytest.mark.slow, pytest.mark.alone]  # a browser begins late where all else begins, too


@pytest.mark.deep
@pytest.mark.parametrize("browser", [chromium, firefox, webkit], ids=["chromium", "firefox", "webkit"])
def test_a_story(place: Place, browser: Callable[[], AbstractContextManager[Window]]) -> None:
    """And another server at the same port, while the page is open."""
    with browser() as window:
        port = str(free_port())
        with serving(place, "--port", port) as site:
            tell(window, place, site)
            window.go(site.address().rstrip("/"))
            window.see("h2", "Forks")
        lose(window)
        with serving(place, "--port", port):
            find(window, place)
