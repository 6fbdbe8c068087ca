"""The bypass suite at level 2: nothing passes the gate that it did not let pass, out of a container."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from conformance.bypasses.attempt import ALLOWED, TABLE
from conformance.bypasses.outside import CONTAINED, series
from conformance.escapes.pairs.backend import Backend, sides
from conformance.escapes.pairs.known import NOT_HELD
from conformance.escapes.pairs.outside import Ground, meet
from conformance.outside import got_out, mistaken
from conftest import Place
from engines import EngineHere, require_one_of
from mudroom.sandbox.client.client import Client
from test_escape_pairs import met

pytestmark = pytest.mark.alone


@pytest.mark.slow
@pytest.mark.parametrize("mode", CONTAINED)
def test_nothing_passes_the_gate_out_of_a_container(place: Place, engine: EngineHere, mode: str) -> None:
    if os.geteuid() == 0 and mode == "plain":
        pytest.skip("tried as an ordinary user: the container's user is one, too")
    require_one_of(engine.kind, mode)
    found = series(mode, environ=engine.environ)
    assert found.trouble == ""
    assert mistaken(found.outcomes) == {}
    through = got_out(found.outcomes)
    allowed = {name for name, one in TABLE.items() if one.group == ALLOWED}
    if mode == "plain":
        allowed = {name for name in allowed if "captured" not in name}  # nothing is, without a namespace
    assert {name: found.outcomes[name].error for name in allowed - set(through)} == {}
    assert {name: how for name, how in through.items() if name not in allowed} == {}
    assert found.strays == []
    refused = [one for one in found.outcomes.values() if one.error]
    assert len(refused) > len(TABLE) / 2, "they were tried"


@pytest.fixture
def ground() -> Iterator[Ground]:
    with Ground() as ground:
        yield ground


@pytest.mark.both_users
def test_containers_do_not_meet(ground: Ground, engine: EngineHere, client: Client) -> None:
    with sides(ground, Backend(2, engine=engine.environ), client=client) as (giver, taker):
        found = met(meet(ground, giver, taker))
    assert {pair: how for pair, how in found.items() if pair not in NOT_HELD["1, overlay"]} == {}
