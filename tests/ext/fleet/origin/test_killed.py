"""Each side killed at each point. No errand runs twice, none vanishes, and each fork is here once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from origin_fixtures import archive, session
from scripted_worker import HELLO, ScriptedWorker

from mudroom.ext.fleet.origin import dispatcher, worker_session
from mudroom.ext.fleet.origin.archive_fetcher import IncomingArchive
from mudroom.ext.fleet.origin.archive_import import ForkImporter
from mudroom.ext.fleet.origin.errand_log import ErrandLog
from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.origin.run import FleetErrand, FleetRun, FrontEnd, RunRequest, begin, resume
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.wire import message as wire
from mudroom.session import Session
from tiers import QUICK, SEED

__all__ = ["archive", "session"]

COUNT = 3
WORKER = FleetWorker("a", (b"scripted",))


class Memory:
    """A worker's memory from link to link: an honest one."""

    def __init__(self, archive: bytes) -> None:
        self.archive = archive
        self.ran: list[tuple[str, int]] = []
        self.held: set[tuple[str, int]] = set()
        self.kept_without_fork: list[str] = []
        self.sends = 0
        self.dies_at = 0

    def worker(self) -> ScriptedWorker:
        return ScriptedWorker(self.archive, hello=self._hello, errand=self._errand, fetch=self._fetch, kept=self._kept)

    def _send(self, worker: ScriptedWorker, kind: int, message: object, stream: int = 0) -> None:
        """Send, unless it is the point at which this worker is killed."""
        self.sends += 1
        if self.sends == self.dies_at:
            worker.end()
        if not worker.is_ended:
            worker.send(kind, message, stream)

    def _hello(self, worker: ScriptedWorker, _nothing: None) -> None:
        held = tuple(wire.HeldErrand(*key, "ended") for key in sorted(self.held))
        self._send(worker, wire.HELLO, HELLO._replace(held=held))

    def _errand(self, worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        key = (errand.errand, errand.attempt)
        if key in self.ran:
            self._send(worker, wire.FAILED, wire.Failed("was accepted already"), stream)
            return
        self.ran.append(key)
        self.held.add(key)
        self._send(worker, wire.ACCEPTED, wire.Accepted(*key), stream)
        self._send(worker, wire.OUTCOME, worker.outcome(errand), stream)

    def _fetch(self, worker: ScriptedWorker, fetch: wire.Fetch, stream: int) -> None:
        key = (fetch.errand, fetch.attempt)
        if key not in self.held:
            self._send(worker, wire.FAILED, wire.Failed("is not here"), stream)
        elif fetch.offset < 0:
            errand = wire.Errand(*key, b"", (), b"", (), None, b"", 0.0)
            self._send(worker, wire.OUTCOME, worker.outcome(errand), stream)
        else:
            half = fetch.offset + (len(self.archive) - fetch.offset + 1) // 2
            for start, end in ((fetch.offset, half), (half, len(self.archive))):
                part = wire.ArchivePart(start, self.archive[start:end], end == len(self.archive))
                self._send(worker, wire.ARCHIVE, part, stream)

    def _kept(self, _worker: ScriptedWorker, kept: wire.Kept, _stream: int) -> None:
        self.held.discard((kept.errand, kept.attempt))


class Point(NamedTuple):
    """One of the origin's functions, before or after which it is killed."""

    holder: Any
    name: str


POINTS = (
    Point(ErrandLog, "commit"),
    Point(OriginLink, "send"),
    Point(ForkImporter, "import_archives"),
    Point(IncomingArchive, "add"),
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "TICK", 0.01)
    monkeypatch.setattr(worker_session, "_RETRY_DELAYS", (0.001,))


def _follow(run: FleetRun) -> list[tuple[str, int, str, str]]:
    with run:
        for _settled in run.settled():
            pass
        return [(errand.label, row.attempt, row.state, row.fork) for errand, row in run.rows()]


def _begin(session: Session, memory: Memory, lease: float, retry: int = 0) -> list[tuple[str, int, str, str]]:
    errands = tuple(FleetErrand((b"true",)) for _number in range(COUNT))
    front_end = FrontEnd(lambda _worker: memory.worker(), {}, lease=lease)
    return _follow(begin(session, RunRequest(errands, retry=retry), [WORKER], front_end))


def _resume(session: Session, memory: Memory, name: str) -> list[tuple[str, int, str, str]]:
    front_end = FrontEnd(lambda _worker: memory.worker(), {}, lease=5.0)
    return _follow(resume(session, name, {"a": WORKER}, front_end))


def _points(most: int) -> Iterator[int]:
    step = 5 if QUICK else 1
    return iter(range(1 + int(SEED) % step, most, step))


def test_an_origin_that_is_killed_at_any_point_goes_on(session: Session, archive: bytes) -> None:
    killed = 0
    for number in _points(200):
        memory = Memory(archive)
        before = {fork.name for fork in session.vault.forks()}
        child = os.fork()
        if not child:
            _die_at(number)
            try:
                _begin(session, memory, 5.0)
            finally:
                os._exit(0)
        _pid, status = os.waitpid(child, 0)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        log = ErrandLog(session.vault.path)
        runs = log.runs()
        # errands that its worker, which was killed with it, had run and not discarded are known from the log at most
        rows = {row.key: row for row in log.attempts(runs[-1].run)} if runs else {}
        log.close()
        memory.ran = [key for key, row in rows.items() if row.state in ("sent", "accepted", "ended", "fetched", "kept")]
        memory.held = set(memory.ran)
        if not rows:
            continue
        states = _resume(session, memory, runs[-1].run)
        assert [state for _label, _attempt, state, _fork in states] == ["kept"] * COUNT, (number, states)
        new = {fork.name for fork in session.vault.forks()} - before
        assert sorted(new) == sorted(fork for _label, _attempt, _state, fork in states), (number, states)
        assert len(memory.ran) == len(set(memory.ran)) == COUNT
        assert memory.held == set(), number
        killed += 1
    assert killed > 3


def _die_at(number: int) -> None:
    """Kill this process before or after the Nth call to one of ``POINTS``."""
    count = 0

    def counted(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            for step in ("before", "after"):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                if step == "before":
                    result = function(*arguments, **options)
            return result

        return call

    for point in POINTS:
        setattr(point.holder, point.name, counted(getattr(point.holder, point.name)))


def test_a_worker_that_is_killed_at_any_frame_loses_what_ran_at_most(session: Session, archive: bytes) -> None:
    for number in _points(60):
        memory = Memory(archive)
        memory.dies_at = number
        before = {fork.name for fork in session.vault.forks()}
        states = _begin(session, memory, 5.0)
        if not memory.ran:  # before it said who it is: it is not tried again, and nothing ran
            assert {state for _label, _attempt, state, _fork in states} == {"failed"} and number == 1
            continue
        assert [state for _label, _attempt, state, _fork in states] == ["kept"] * COUNT, (number, states)
        new = {fork.name for fork in session.vault.forks()} - before
        assert sorted(new) == sorted(fork for _label, _attempt, _state, fork in states)
        assert len(memory.ran) == len(set(memory.ran)) == COUNT, number
        assert memory.held == set(), number
        if memory.sends < number:
            break
    else:
        raise AssertionError("a run has fewer frames than that")
