"""A report about a fork, for an agent."""

from __future__ import annotations

import pytest

from conftest import Place
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.settings import Settings
from mudroom.ext.agents.tools.change import inspect
from test_appearance import Machines, machines, sh

__all__ = ["machines"]  # a fixture


def test_inspect(place: Place) -> None:
    place.write("a", "1")
    session = place.session(Settings(commands=CommandPolicy((ClassRule("destructive", "deny"),))), agent="coder")
    session.forks.new("f")
    session.forks.checkpoint("f", "start")
    session.run([b"touch", b"new"], fork="f")
    session.run([b"rm", b"a"], fork="f")
    seen = inspect(session.forks, "f")
    record = session.forks.record("f")
    assert record is not None
    assert (seen.state, record.command, record.exit_code) == ("idle", (b"touch", b"new"), 0)
    assert [one.name for one in seen.checkpoints] == ["start"]
    assert seen.denials[0] | {"reason": ""} == {"kind": "command", "target": "rm a", "reason": "", "count": 1}
    assert session.forks.rollback("f") is not None
    assert session.changes.of("f").changes == ()


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137), ("exit 255", 255)])
def test_the_exit_code_is_that_of_the_result(place: Place, script: str, code: int) -> None:
    session = place.session()
    assert session.run([b"sh", b"-c", b"echo x > made; " + script.encode()], fork="f").exit_code == code
    record = session.forks.record("f")
    assert record is not None
    assert record.exit_code == code


@pytest.mark.both_users
def test_a_project_at_another_path_is_named_by_its_own(machines: Machines) -> None:
    machines.home.write("f", "one\n")
    machines.ship()
    with machines.worker() as session:
        sh(session, "echo two >>f", "k")
        changes = session.changes.review("k").changeset
        assert [change.path for change in changes.changes] == [b"f"]
        assert inspect(session.forks, "k").changeset == changes
