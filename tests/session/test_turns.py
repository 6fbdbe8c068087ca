"""Agents run side by side; a user's command has the vault alone, stops them for that long, and lets them go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clocks import give_way
from conftest import Place
from mudroom.core.result import Result
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.vault import turn as turns
from mudroom.vault.turn import Quiet, Turn
from whole_text import whole

WRITER = b"i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i >> count; done"


def wait_for(condition: object) -> None:
    """Look until it is so; the test's own time limit ends it if it never is."""
    assert callable(condition)
    while not condition():
        give_way()


class Agent:
    """A command that counts in its fork until it is told to stop, in a thread of its own."""

    def __init__(self, session: Session, name: str, quiet: float | None = None) -> None:
        """``quiet``: as for ``Session.run``."""
        self.session, self.name, self._quiet = session, name, quiet
        self.files = session.forks.files(name) if session.vault.fork(name) else None
        assert self.files is not None
        self.files.list()  # in use: so the live mount is asked for
        self.thread = threading.Thread(target=self._run)
        self.result: Result | None = None
        self.thread.start()
        wait_for(lambda: self.size() > 0)

    def _run(self) -> None:
        self.result = self.session.run([b"sh", b"-c", WRITER], fork=self.name, timeout=60, quiet=self._quiet)

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


# --- a user's own command, beside agents and other commands of the user ---


@pytest.fixture
def vault(place: Place) -> bytes:
    return os.fsencode(place.root)


class Aside:
    """A command that stands aside in a thread of its own."""

    def __init__(self, turn: Turn) -> None:
        self.paused, self.resumed = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=turn.stand_aside, args=(self.paused.set, self.resumed.set))
        self.thread.start()
        self.paused.wait()


def test_an_agent_pauses_for_a_users_command_and_a_landing_does_not_wait_for_that(vault: bytes) -> None:
    agent, user, landing = Turn(vault), Turn(vault), Turn(vault)
    agent.begin()
    assert agent.stand_aside(pytest.fail, pytest.fail) == 0.0
    user.begin(is_users=True)
    quiet = Quiet(vault, "npm test", 60)
    aside = Aside(agent)
    assert user.stand_aside(pytest.fail, pytest.fail, is_users=True) == 0.0
    user.end()
    landing.take(lambda: None)  # returns as soon as the agent has paused
    landing.give()
    assert not aside.resumed.is_set()
    quiet.close()
    aside.thread.join()
    assert aside.resumed.is_set()
    agent.end()
    for one in (agent, user, landing):
        one.close()


def test_a_users_command_pauses_for_a_landing(vault: bytes) -> None:
    user, landing = Turn(vault), Turn(vault)
    user.begin(is_users=True)
    taken = threading.Event()
    paused, resumed = threading.Event(), threading.Event()

    def land() -> None:
        landing.take(taken.set)

    thread = threading.Thread(target=land)
    thread.start()
    taken.wait()
    aside = threading.Thread(target=lambda: user.stand_aside(paused.set, resumed.set, is_users=True))
    aside.start()
    thread.join()
    assert paused.is_set() and not resumed.is_set()
    landing.give()
    aside.join()
    assert resumed.is_set()
    user.close()
    landing.close()


def test_a_new_agent_waits_for_a_users_command_and_is_told_for_which(vault: bytes) -> None:
    quiet, agent = Quiet(vault, "npm test", 60), Turn(vault)
    told: list[bytes] = []

    def waiting(path: bytes) -> None:
        told.append(path)
        quiet.close()

    agent.begin(waiting)
    assert told == [vault + b"/quiet"]
    agent.close()


def test_one_users_command_takes_over_from_another(vault: bytes) -> None:
    agent = Turn(vault)
    agent.begin()
    first, second = Quiet(vault, "one", 60), Quiet(vault, "two", 60)
    first.close()
    second.look()
    aside = Aside(agent)
    second.close()
    aside.thread.join()
    agent.close()


def test_agents_pause_for_no_longer_than_the_policy_says(vault: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    quiet, agent = Quiet(vault, "npm run dev", 10), Turn(vault)
    agent.begin(is_users=True)
    now = 109.9
    quiet.look()
    assert not turns._is_free(agent._quiet)
    now = 110.0
    quiet.look()
    assert turns._is_free(agent._quiet)
    quiet.look()
    assert turns._is_free(agent._quiet)
    agent.close()


def test_an_agent_pauses_while_a_users_command_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session, other = place.session(), place.session()
    for name in ("agent", "users"):
        session.forks.new(name)
    agent, paused = Agent(session, "agent"), threading.Event()
    begin = session.vault.turn.begin

    def beginning(*_arguments: object, is_users: bool = False) -> None:
        paused.set()
        begin(is_users=is_users)

    monkeypatch.setattr(session.vault.turn, "begin", beginning)
    users = Agent(other, "users", quiet=60)
    paused.wait()
    size, users_size = agent.size(), users.size()
    wait_for(lambda: users.size() > users_size)
    assert agent.size() == size
    with place.session().alone("a landing"):
        users_size = users.size()
        assert users.size() == users_size, "it is paused, too"
    wait_for(lambda: users.size() > users_size)
    assert agent.size() == size
    users.stop()
    wait_for(lambda: agent.size() > size)
    agent.stop()


def test_without_a_pause_agents_go_on(place: Place) -> None:
    session, other = place.session(), place.session()
    for name in ("agent", "users"):
        session.forks.new(name)
    agent, users = Agent(session, "agent"), Agent(other, "users", quiet=0.0)
    sizes = agent.size(), users.size()
    wait_for(lambda: agent.size() > sizes[0] and users.size() > sizes[1])
    agent.stop()
    users.stop()
