"""A short walk of two monkeys that ask the API at the same time; ``dev/monkey api`` goes further."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra web")

from conftest import Place
from monkey.api import Api
from monkey.chance import Walk

pytestmark = [pytest.mark.slow]


def test_a_walk_at_the_api(place: Place) -> None:
    monkey = Api(place, Walk(6, steps=25))
    monkey.go()
    assert monkey.landed and {200, 202, 400, 404} <= monkey.met.keys(), "it has not come far"
