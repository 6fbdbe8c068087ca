"""The page in Firefox."""

from __future__ import annotations

import pytest

from browser import serving
from conftest import Place
from otherbrowsers import firefox
from pagestory import find, lose, tell

pytestmark = [pytest.mark.anybody, pytest.mark.slow]


def test_a_story_in_firefox(place: Place) -> None:
    """And another server at the same port, while the page is open."""
    pytest.importorskip("starlette", reason="the extra web")
    with firefox() as window:
        with serving(place) as site:
            tell(window, place, site)
            window.go(site.address().rstrip("/"))
            window.see("h2", "Forks")
        lose(window)
        with serving(place, "--port", str(site.port)):
            find(window, place)
