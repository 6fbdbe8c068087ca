"""A standing sandbox ends before anybody else has its fork, and with its session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from conftest import Place
from mudroom.session import Session
from standing_fork import COMMANDS, mounts_of, out, stand, stands
from tiers import QUICK

pytestmark = pytest.mark.both_users


def launched(session: Session) -> int:
    """Count the processes of the session's launcher."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in (line.split() for line in listed.splitlines()[1:])}
    below = {os.getpid()}
    for _depth in range(6):
        below |= {pid for pid, parent in parents.items() if parent in below}
    return len(below)


ENDINGS = {
    "review": lambda session: session.forks.record("f"),
    "checkpoint": lambda session: session.forks.checkpoint("f", "point"),
    "rename": lambda session: session.forks.rename("f", "g"),
    "apply": lambda session: session.changes.apply("f"),
    "file tools": lambda session: session.forks.files("f").write(b"g", b"1"),
}


@pytest.mark.parametrize("way", ENDINGS)
def test_it_is_ended_by(place: Place, way: str) -> None:
    session = place.session()
    out(session, "echo 1 > f")
    stand(session)
    assert mounts_of(place)
    ENDINGS[way](session)
    assert not mounts_of(place)
    assert not any(os.path.lexists(fork.path + b"/standing") for fork in session.vault.forks())


def test_it_is_ended_by_a_rollback_and_a_discard(place: Place) -> None:
    session = place.session()
    out(session, "echo 1 > f")
    session.forks.checkpoint("f", "point")
    stand(session)
    session.forks.rollback("f", "point")
    assert not stands(session)
    stand(session)
    session.forks.discard("f")
    assert not mounts_of(place)


def test_another_session_runs_a_command_in_the_fork(place: Place) -> None:
    """Each sees what the other has written, and the mount of the first has gone before the other's begins."""
    first, second = place.session(), place.session()
    stand(first)
    for number in range(6):
        for session in (first, second, second):
            out(session, f"echo {number} >> f")
    assert out(first, "wc -l < f").split() == ["18"]
    assert out(second, "wc -l < f").split() == ["18"]


def test_another_process_runs_a_command_in_the_fork(place: Place) -> None:
    session = place.session()
    stand(session)
    out(session, "echo ours > f")
    words = [sys.executable, "-m", "mudroom", "exec", "--fork", "f", "--", "sh", "-c", "cat f; echo theirs > f"]
    environ = {**os.environ, "MUDROOM_STATE": str(place.state), "HOME": str(place.home)}
    ran = subprocess.run(words, cwd=place.project, env=environ, capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("ours"), ran.stderr
    assert not mounts_of(place)
    assert out(session, "cat f") == "theirs\n"


def test_its_session_was_killed(place: Place) -> None:
    """Its door is there, and nobody answers."""
    script = f"""
import os, signal
from mudroom.errors import CommandNotStarted, Unsupported
from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.plan import StandingPlan
from mudroom.core.settings import Settings
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.client.template import StandingPlace
from mudroom.session import Session
from mudroom.session.confinement.standing import facts_of
from mudroom.session.order import Stdio
session = Session.open({os.fsencode(place.project)!r}, state={os.fsencode(place.state)!r},
    home={os.fsencode(place.home)!r}, environ=os.environb)
for number in range({COMMANDS}):
    session.run([b"sh", b"-c", b"echo 1 >> f"], fork="f")
assert os.path.lexists(session.vault.fork("f").path + b"/standing")
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -signal.SIGKILL
    session = place.session()
    assert stands(session)
    assert out(session, "wc -l < f").split() == [str(COMMANDS)]
    assert not stands(session)


def test_nothing_stands_after_a_session(place: Place) -> None:
    with place.session() as session:
        stand(session)
    assert not mounts_of(place)
    assert not stands(place.session())


def test_idle_forks_cost_no_process(place: Place) -> None:
    session = place.session()
    before, many = launched(session), 20 if QUICK else 40
    for number in range(many):
        stand(session, f"f{number}")
    standing = sum(stands(session, f"f{number}") for number in range(many))
    assert standing == 12
    each = 2  # a template with its spare
    assert launched(session) - before <= each * standing + 4
    for number in range(100 if QUICK else 1000):
        session.forks.new(f"idle{number}")
    assert launched(session) - before <= each * standing + 4
