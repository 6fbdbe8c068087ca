"""The host's interpreter, which a command is a clone of until its exec: no two commands of one fork change it.

All of it: ``pytest tests/session/test_escape_interpreter.py``. The quick tier leaves out
all but one way to confine.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conformance.escapes.pairs.backend import BACKENDS, STANDING, Backend, opened, stand
from conformance.escapes.pairs.interpreter import OVERTAKINGS
from conformance.escapes.pairs.outside import Ground
from conformance.escapes.pairs.overtaking import Interpreter, Overtaking, interpreter_of, overtake
from conformance.escapes.pairs.side import ForkSide, ProcessSide, Side, command_line
from mudroom.sandbox.client import launcher_client
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.launcher import wire
from test_escape_pairs import HERE

pytestmark = pytest.mark.both_users

FORK = "a"


@pytest.fixture
def ground() -> Iterator[Ground]:
    with Ground() as ground:
        yield ground


@pytest.fixture
def interpreter(ground: Ground) -> Iterator[Interpreter]:
    with interpreter_of(ground.root) as interpreter:
        yield interpreter


@contextmanager
def fork_side(ground: Ground, backend: Backend) -> Iterator[ForkSide]:
    """A fork whose launcher is one of the present interpreter."""
    client = LauncherClient(SpawnedLauncher())
    client.start()
    try:
        with opened(ground, backend, client) as session:
            stand(session, backend, FORK)
            yield ForkSide(session, FORK)
    finally:
        client.close()


def tried(
    ground: Ground, interpreter: Interpreter, side: Side, starting: Side | None = None, most: int = 100
) -> dict[str, Overtaking]:
    return {name: overtake(ground, interpreter, name, side, starting or side, most=most) for name in OVERTAKINGS}


def changed(outcomes: dict[str, Overtaking]) -> dict[str, str]:
    return {name: outcome.evidence for name, outcome in outcomes.items() if outcome.evidence}


def test_one_beside_it_has_no_command_change_the_interpreter(ground: Ground, interpreter: Interpreter) -> None:
    with fork_side(ground, BACKENDS[HERE[0]]) as side:
        assert changed(tried(ground, interpreter, side)) == {}


@pytest.mark.deep
@pytest.mark.parametrize("init", ["native", "python"])
@pytest.mark.parametrize("name", [*HERE, "standing"])
def test_nor_in_any_way_to_confine(
    ground: Ground, interpreter: Interpreter, name: str, init: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if init == "python":
        monkeypatch.setattr(wire, "NATIVE_INIT", b"")
    with fork_side(ground, STANDING if name == "standing" else BACKENDS[name]) as side:
        assert changed(tried(ground, interpreter, side)) == {}


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in HERE if BACKENDS[name].namespaces and not BACKENDS[name].store])
def test_nor_does_a_command_of_another_process(ground: Ground, interpreter: Interpreter, name: str) -> None:
    backend = BACKENDS[name]
    words = ["exec", "--fork", FORK, "--level", str(backend.level), "--view", backend.view]
    with fork_side(ground, backend) as side:
        starting = command_line(ground.project, ground.home, ground.state, words)
        assert changed(tried(ground, interpreter, side, starting, most=3)) == {}


# --- controls: without the look at a program, and without the read-only mount ---


UNSEEN = """\
from mudroom.sandbox.launcher import init
init.require_no_magic_link = lambda program: None
"""
UNPROTECTED = """\
from mudroom.sandbox.launcher import program
program._is_protected = lambda: True
"""


def weaken(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have the launcher execute a text when it starts. It makes no init but those of Python."""
    monkeypatch.setattr(wire, "NATIVE_INIT", b"")
    begin = launcher_client._BEGIN.partition("from mudroom")
    monkeypatch.setattr(launcher_client, "_BEGIN", f"{begin[0]}exec({text!r}); {begin[1]}{begin[2]}")


def test_the_mount_alone_holds(ground: Ground, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch, UNSEEN)
    with fork_side(ground, BACKENDS[HERE[0]]) as side:
        for way in OVERTAKINGS:
            found = overtake(ground, interpreter, way, side, side, until_it_ran=True)
            assert (found.evidence, found.ran) == ("", True), way
            assert set(found.told.values()) == {errno.EROFS, errno.ETXTBSY}, found.told


def test_without_both_the_interpreter_is_changed(
    ground: Ground, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch, UNSEEN + UNPROTECTED)
    with fork_side(ground, BACKENDS[HERE[0]]) as side:
        for way in OVERTAKINGS:
            interpreter.restore()
            found = overtake(ground, interpreter, way, side, side, until_it_ran=True)
            assert "mode" in found.evidence, found


def test_where_nothing_confines_it_is_changed(ground: Ground, interpreter: Interpreter) -> None:
    side = ProcessSide(ground.project, [], {**os.environ, "HOME": str(ground.home)})
    starting = ProcessSide(ground.project, interpreter.prefix, side.environ)
    for way in OVERTAKINGS:
        interpreter.restore()
        found = overtake(ground, interpreter, way, side, starting, until_it_ran=True)
        assert "mode" in found.evidence, found
