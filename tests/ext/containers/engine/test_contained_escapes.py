"""The escape suite at level 2: no escape from a command whose namespaces are in a container."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from conformance.bypasses.outside import CONTAINED
from conformance.escapes.attempt import TABLE
from conformance.escapes.known import NOT_HELD
from conformance.escapes.outside import Range
from conformance.outside import got_out, mistaken
from conftest import Place, act_as
from engines import EngineHere, require_one_of
from mudroom.core.settings import Settings
from mudroom.session import Session

pytestmark = pytest.mark.alone


@contextmanager
def session_on(range_: Range, engine: EngineHere, mode: str) -> Iterator[Session]:
    """Open a session on the range's project, as a user of that home would."""
    environ = {**engine.environ, **range_.environment, "DOCKER_HOST": engine.environ.get("DOCKER_HOST", "")}
    with Session.open(
        os.fsencode(range_.project),
        state=os.fsencode(range_.root / "state"),
        home=os.fsencode(range_.home),
        environ={os.fsencode(key): os.fsencode(value) for key, value in environ.items()},
        settings=Settings(timeout=60.0),
    ) as session:
        act_as(session, level=2)
        if mode == "plain":
            session.machine.confinement.mode_contained = "plain"
        yield session


def running_in(session: Session) -> Callable[[list[str]], str]:
    def run(argv: list[str]) -> str:
        result = session.run([os.fsencode(word) for word in argv], fork="escapes")
        assert result.level == 2
        return result.stdout.decode(errors="replace")

    return run


@pytest.mark.slow
@pytest.mark.parametrize("mode", CONTAINED)
def test_nothing_gets_out_of_a_command_in_a_container(place: Place, engine: EngineHere, mode: str) -> None:
    require_one_of(engine.kind, mode)
    with Range() as range_:
        project = sorted(range_.project.iterdir())
        with session_on(range_, engine, mode) as session:
            outcomes = range_.try_all(running_in(session), list(TABLE))
        assert engine.left(range_.root) == []
        assert sorted(range_.project.iterdir()) == project
    assert mistaken(outcomes) == {}
    assert {name: how for name, how in got_out(outcomes).items() if name not in NOT_HELD.get(mode, {})} == {}
    refused = [outcome for outcome in outcomes.values() if outcome.error and outcome.error != "no answer"]
    assert len(refused) > len(TABLE) / 2, "they were tried"
