"""Two commands in containers, each in a fork of its own: ``tests/session/test_escape_pairs.py`` at another level."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.escapes.pairs.backend import Backend, sides
from conformance.escapes.pairs.known import NOT_HELD
from conformance.escapes.pairs.outside import Ground, meet
from engines import EngineHere
from mudroom.sandbox.client.client import Client
from test_escape_pairs import met

pytestmark = [pytest.mark.both_users, pytest.mark.alone]


@pytest.fixture
def ground() -> Iterator[Ground]:
    with Ground() as ground:
        yield ground


def test_containers_do_not_meet(ground: Ground, engine: EngineHere, client: Client) -> None:
    with sides(ground, Backend(2, engine=engine.environ), client=client) as (giver, taker):
        found = met(meet(ground, giver, taker))
    assert {pair: how for pair, how in found.items() if pair not in NOT_HELD["1, overlay"]} == {}
