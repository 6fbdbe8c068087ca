"""The bypass suite at level 2: nothing passes the gate that it did not let pass, out of a container."""

from __future__ import annotations

import os

import pytest

from conformance.bypasses.attempt import ALLOWED, TABLE
from conformance.bypasses.outside import CONTAINED, series
from conformance.outside import got_out, mistaken
from conftest import Place
from engines import EngineHere, require_one_of

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
