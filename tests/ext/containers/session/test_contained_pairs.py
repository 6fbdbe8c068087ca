"""Two commands in containers, each in a fork of its own, and the launcher's interpreter there: as the suites of
``tests/session/test_escape_pairs.py`` and ``tests/session/test_escape_interpreter.py`` at other levels."""

from __future__ import annotations

import pytest

from conformance.escapes.pairs.backend import Backend, opened, sides
from conformance.escapes.pairs.known import NOT_HELD
from conformance.escapes.pairs.outside import Ground, meet
from conformance.escapes.pairs.overtaking import Interpreter
from conformance.escapes.pairs.side import ForkSide
from engines import EngineHere
from mudroom.sandbox.client.client import Client
from test_escape_interpreter import FORK, changed, ground, tried
from test_escape_pairs import met

__all__ = ["ground"]  # a fixture
pytestmark = [pytest.mark.both_users, pytest.mark.alone]


def test_containers_do_not_meet(ground: Ground, engine: EngineHere, client: Client) -> None:
    with sides(ground, Backend(2, engine=engine.environ), client=client) as (giver, taker):
        found = met(meet(ground, giver, taker))
    assert {pair: how for pair, how in found.items() if pair not in NOT_HELD["1, overlay"]} == {}


def test_a_container_s_launcher_is_not_changed(ground: Ground, engine: EngineHere) -> None:
    """Its interpreter is a copy in mudroom's state, which is the user's own."""
    with opened(ground, Backend(2, engine=engine.environ)) as session:
        side = ForkSide(session, FORK)
        assert session.run([b"true"], fork=FORK).level == 2
        copies = [path for path in (ground.state / "runtime").rglob("python3") if path.is_file()]
        assert copies
        for path in copies:
            assert changed(tried(ground, Interpreter(path), side)) == {}
