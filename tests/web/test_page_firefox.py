"""The page in Firefox."""

from __future__ import annotations

import pytest

from browser import Site
from conftest import Place
from otherbrowsers import firefox
from pagestory import tell

pytestmark = [pytest.mark.anybody, pytest.mark.slow]


def test_a_story_in_firefox(place: Place, site: Site) -> None:
    with firefox(site.url) as window:
        tell(window, place, site)
