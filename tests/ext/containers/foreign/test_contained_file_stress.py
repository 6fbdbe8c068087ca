"""fsx and fsstress in a container: as ``tests/foreign/test_file_stress.py`` at other levels."""

from __future__ import annotations

import pytest

import suite
from conftest import Place
from engines import EngineHere
from suite import LEVEL_2
from test_file_stress import TOOLS, holds

pytestmark = [pytest.mark.both_users]


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.limit(600)
@pytest.mark.parametrize("name", TOOLS)
def test_each_seed_in_a_container(place: Place, name: str, engine: EngineHere) -> None:
    program = suite.source(name)
    session = engine.session(place, suite.settings(program))
    mode = f"{LEVEL_2}, {engine.kind}"
    for seed in TOOLS[name].seeds:
        holds(session, place, TOOLS[name], program, mode, seed)
    suite.tell(name, mode, len(TOOLS[name].seeds), 0, 0)
