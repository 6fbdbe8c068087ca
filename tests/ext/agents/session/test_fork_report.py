"""Reports of a fork for an agent's runtime: before its first command, and on request."""

from __future__ import annotations

import pytest

from conftest import Place
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.settings import Settings
from mudroom.ext.agents.session.fork_report import inspect, prepare
from test_appearance import Machines, machines, sh

__all__ = ["machines"]  # a fixture


def test_prepare_and_inspect(place: Place) -> None:
    place.write("a", "1")
    session = place.session(Settings(commands=CommandPolicy((ClassRule("destructive", "deny"),))), agent="coder")
    found = prepare(session, "f")
    assert (found.fork, found.created, found.agent, found.level) == ("f", True, "coder", 1)
    assert dict(found.actions)["destructive"] == "deny"
    assert not prepare(session, "f", checkpoint="start").created
    session.run([b"touch", b"new"], fork="f")
    session.run([b"rm", b"a"], fork="f")
    seen = inspect(session.forks, "f")
    assert (seen.state, seen.command, seen.exit_code) == ("idle", (b"touch", b"new"), 0)
    assert [one.name for one in seen.checkpoints] == ["start"]
    assert seen.denials[0] | {"reason": ""} == {"kind": "command", "target": "rm a", "reason": "", "count": 1}
    assert session.forks.rollback("f") is not None
    assert session.changes.of("f").changes == ()


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137), ("exit 255", 255)])
def test_the_exit_code_is_that_of_the_result(place: Place, script: str, code: int) -> None:
    session = place.session()
    assert session.run([b"sh", b"-c", b"echo x > made; " + script.encode()], fork="f").exit_code == code
    assert inspect(session.forks, "f").exit_code == code


@pytest.mark.both_users
def test_a_project_at_another_path_is_named_by_its_own(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    with machines.worker() as session:
        assert prepare(session, "k").project == machines.path
        sh(session, "echo two >>f", "k")
        changes = session.changes.review("k").changeset
        assert [change.path for change in changes.changes] == [b"f"]
        assert inspect(session.forks, "k").changeset == changes
