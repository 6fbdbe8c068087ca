"""Agents run side by side; a user's command has the vault alone, stops them for that long, and lets them go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from clocks import give_way
from conftest import Place
from mudroom.core.result import Result
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.vault.turn import Turn
from whole_text import whole

WRITER = b"i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i >> count; done"


def wait_for(condition: object) -> None:
    """Look until it is so; the test's own time limit ends it if it never is."""
    assert callable(condition)
    while not condition():
        give_way()


class Agent:
    """A command that counts in its fork until it is told to stop, in a thread of its own."""

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.files = session.forks.files(name) if session.vault.fork(name) else None
        assert self.files is not None
        self.files.list()  # in use: so the live mount is asked for
        self.thread = threading.Thread(target=self._run)
        self.result: Result | None = None
        self.thread.start()
        wait_for(lambda: self.size() > 0)

    def _run(self) -> None:
        self.result = self.session.run([b"sh", b"-c", WRITER], fork=self.name, timeout=60)

    def size(self) -> int:
        assert self.files is not None
        try:
            entry = self.files.look("count")
        except OSError:
            return 0
        return entry.size if entry is not None else 0

    def stop(self) -> None:
        assert self.files is not None
        self.files.write("stop", "")
        self.thread.join()


def test_agents_stop_while_the_user_has_the_vault_alone(place: Place) -> None:
    session = place.session()
    other = place.session()
    session.forks.new("one")
    agent = Agent(session, "one")
    stopped: list[bool] = []
    with other.alone("the user", stopping=lambda: stopped.append(True)):
        assert stopped == [True]
        size = agent.size()
        result = other.run([b"sh", b"-c", b"i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; echo user > user"])
        assert agent.size() == size, "it was stopped"
        told = (
            "a command is running in the fork one, stopped for as long as this one takes (try again when it has ended)"
        )
        with pytest.raises(UsageError, match=whole(told)):
            other.run([b"true"], fork="one")
        assert other.changes.apply(result.fork).conflicts == ()
    wait_for(lambda: agent.size() > size)
    agent.stop()
    assert agent.result is not None
    assert agent.result.exit_code == 0
    assert (place.project / "user").read_text() == "user\n"


def test_agents_run_side_by_side(place: Place) -> None:
    session = place.session()
    agents = []
    for name in ("one", "two"):
        session.forks.new(name)
        agents.append(Agent(place.session(), name))
    sizes = [agent.size() for agent in agents]
    wait_for(lambda: all(agent.size() > size for agent, size in zip(agents, sizes, strict=True)))
    for agent in agents:
        agent.stop()
    assert {change.path for change in session.changes.of("one").changes} == {b"count", b"stop"}


def test_a_command_that_ends_lets_go_for_itself_alone(place: Place) -> None:
    """Two threads of one session share its locks: the one that goes on is still stopped for the user."""
    session, other = place.session(), place.session()
    session.forks.new("long")
    agent = Agent(session, "long")
    assert session.run([b"true"], fork="short").exit_code == 0
    stopped: list[bool] = []
    with other.alone("the user", stopping=lambda: stopped.append(True)):
        assert stopped == [True]
        size = agent.size()
        assert other.run([b"true"]).exit_code == 0
        assert agent.size() == size
    agent.stop()


def test_many_threads_begin_at_once(place: Place) -> None:
    turn = Turn(os.fsencode(place.root))
    began = threading.Barrier(20)

    def agent() -> None:
        began.wait()
        for _ in range(50):
            turn.begin()
            turn.end()

    agents = [threading.Thread(target=agent) for _ in range(20)]
    for thread in agents:
        thread.start()
    for thread in agents:
        thread.join()
    alone = Turn(os.fsencode(place.root))
    alone.take(lambda: pytest.fail("nobody is left"))
    alone.give()
    alone.close()
    turn.close()


def test_what_runs_cannot_be_applied(place: Place) -> None:
    session, other = place.session(), place.session()
    session.forks.new("one")
    agent = Agent(session, "one")
    with other.alone("the user"), pytest.raises(UsageError, match="a command is running in the fork one"):
        other.changes.apply("one")
    agent.stop()


def test_a_killed_user_command_leaves_nobody_stopped(place: Place) -> None:
    session = place.session()
    session.forks.new("one")
    agent = Agent(session, "one")
    program = f"""
import sys
from mudroom.vault.store.store import open_vault
vault = open_vault({os.fsencode(place.state)!r}, {os.fsencode(place.project)!r})
vault.turn.take(lambda: None)
print("alone", flush=True)
sys.stdin.read()
"""
    user = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert user.stdout is not None
    assert user.stdout.readline() == b"alone\n"
    size = agent.size()
    user.send_signal(signal.SIGKILL)
    user.communicate()
    wait_for(lambda: agent.size() > size)
    agent.stop()


def test_time_in_which_a_command_is_stopped_does_not_count(place: Place, later: Callable[[float], None]) -> None:
    session, other = place.session(), place.session()
    session.forks.new("one")
    session.forks.files("one").list()
    results = []

    def agent() -> None:
        script = b"echo go > go; while [ ! -e stop ]; do sleep 0.01; done"
        results.append(session.run([b"sh", b"-c", script], fork="one", timeout=600.0))

    thread = threading.Thread(target=agent)
    thread.start()
    files = session.forks.files("one")
    wait_for(lambda: "go" in files.list())
    with other.alone("the user"):
        later(1000.0)
    files.write("stop", b"")
    thread.join()
    assert (results[0].exit_code, results[0].timed_out) == (0, False)


def test_the_lock_files_are_private(place: Place) -> None:
    session = place.session()
    with session.alone("x"):
        for name in ("wanted", "agents", "lock"):
            assert Path(os.fsdecode(session.vault.path), name).stat().st_mode & 0o777 == 0o600
