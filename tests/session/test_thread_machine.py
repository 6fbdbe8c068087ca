"""Threads of one session on few forks, each with random calls: their changes are never mixed or lost, there is no
deadlock, and no process or mount is left behind."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from mudroom.session.upkeep import problems
from mudroom.vault.turn import Turn

FORKS = ("a", "b")
CALLS = ("run", "run", "start", "apply", "checkpoint", "rollback", "interrupt", "write", "end")
POLICY = Settings(verify=(b"sh", b"-c", b"test ! -e /proc/net/route || ! grep -q eth /proc/net/route"), network="none")
INTERRUPTED = 128 + signal.SIGTERM
"""Exit code of a verification that ``interrupt`` ended: nothing is applied then."""
EXAMPLES = int(os.environ.get("MUDROOM_MACHINES", "12"))
PLANS = st.lists(
    st.lists(st.tuples(st.sampled_from(CALLS), st.sampled_from(FORKS)), min_size=1, max_size=5), min_size=2, max_size=4
)


class Machine:
    """The calls of all threads. ``done`` has the files written by successful commands; several threads append to it,
    which is atomic."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.done: list[tuple[str, str]] = []
        self.rolled_back: set[str] = set()
        self.errors: list[BaseException] = []
        self._numbers = itertools.count()
        self._start = threading.Barrier(1)

    def go(self, plans: list[list[tuple[str, str]]]) -> None:
        self._start = threading.Barrier(len(plans))
        threads = [threading.Thread(target=self._perform, args=(plan,)) for plan in plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _perform(self, plan: list[tuple[str, str]]) -> None:
        calls: dict[str, Callable[[str], None]] = {
            "run": self.run,
            "start": self.start,
            "apply": self.apply,
            "checkpoint": lambda fork: void(self.session.forks.checkpoint(fork, f"c{next(self._numbers)}")),
            "rollback": self.rollback,
            "interrupt": lambda _fork: void(self.session.interrupt()),
            "write": self.write,
            "end": lambda fork: self.session.sandboxes.end(fork, grace=0.0),
        }
        self._start.wait()
        for name, fork in plan:
            try:
                calls[name](fork)
            except UsageError:
                pass  # something runs in the background, or the vault is had alone: a refusal, not a failure
            except BaseException as error:  # noqa: BLE001 - of a thread: told to the test
                self.errors.append(error)

    def _file(self, fork: str) -> str:
        return f"{fork}-{next(self._numbers)}"

    def run(self, fork: str) -> None:
        name = self._file(fork)
        result = self.session.run([b"sh", b"-c", f"echo {name} > {name}; cat {name}".encode()], fork=fork)
        assert result.fork == fork
        if result.exit_code == 0:
            assert result.stdout == f"{name}\n".encode()
            assert name.encode() in {change.path for change in result.changeset.changes} or self._is_applied(name)
            self.done.append((fork, name))

    def _is_applied(self, name: str) -> bool:
        return os.path.exists(os.path.join(os.fsdecode(self.session.project), name))

    def start(self, fork: str) -> None:
        name = self._file(fork)
        one = self.session.start([b"sh", b"-c", f"echo {name} > {name}".encode()], fork=fork)
        ended = one.wait()
        if ended is not None and ended.exit_code == 0:
            self.done.append((fork, name))

    def write(self, fork: str) -> None:
        name = self._file(fork)
        self.session.forks.files(fork).write(name, name.encode())
        self.session.forks.flush(fork)
        self.done.append((fork, name))

    def apply(self, fork: str) -> None:
        with self.session.alone("a thread"):
            landed = self.session.changes.apply(fork)
        verified = landed.verified
        assert verified is None or verified.passed or verified.exit_code == INTERRUPTED  # by another thread

    def rollback(self, fork: str) -> None:
        self.rolled_back.add(fork)
        self.session.forks.rollback(fork)


def void(_result: object) -> None:
    """Call and discard the result."""


@pytest.mark.limit(600)
@given(plans=PLANS)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
def test_threads_on_few_forks(
    tmp_path_factory: pytest.TempPathFactory, client: Client, plans: list[list[tuple[str, str]]]
) -> None:
    place = Place(tmp_path_factory.mktemp("threads"), client)
    session = place.session(POLICY._replace(verify_when="always"))
    for fork in FORKS:
        session.forks.new(fork)
    machine = Machine(session)
    try:
        machine.go(plans)
        assert machine.errors == []
        look_after(session, machine, place.project)
    finally:
        place.close()


def look_after(session: Session, machine: Machine, project: Path) -> None:
    held = {fork: {os.fsdecode(change.path) for change in session.changes.of(fork).changes} for fork in FORKS}
    for fork, names in held.items():
        assert all(name.startswith(f"{fork}-") for name in names), "a file of another fork"
    landed = {path.name for path in project.iterdir()}
    for fork, name in machine.done:
        if fork not in machine.rolled_back:
            assert name in held[fork] | landed, "work is lost"
    assert {fork.name for fork in session.vault.forks()} == set(FORKS), "what was made for a verification is gone"
    assert session.interrupt() is False and session.forks.users.all_shared() == []
    for place in session.vault.forks():
        with place.lock_if_free("a test") as free:
            assert free and place.interrupted is None
    alone = Turn(session.vault.path)
    alone.take(lambda: pytest.fail("a turn is still held"))
    alone.give()
    alone.close()
    assert problems(session) == []
