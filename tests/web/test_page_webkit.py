"""The page in WebKit (GTK), the engine of Safari."""

from __future__ import annotations

import pytest

from browser import Site
from conftest import Place
from otherbrowsers import webkit
from pagestory import tell

pytestmark = [pytest.mark.anybody, pytest.mark.slow]


def test_a_story_in_webkit(place: Place, site: Site) -> None:
    with webkit() as window:
        tell(window, place, site)
