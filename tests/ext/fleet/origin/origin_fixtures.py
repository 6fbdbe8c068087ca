"""A project, an archive of a fork, and runs on scripted workers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scripted_worker import ScriptedFleet

from conftest import Place
from mudroom.ext.fleet.origin import dispatcher, worker_session
from mudroom.ext.fleet.origin.errand_log import AttemptRow
from mudroom.ext.fleet.origin.fleet_event import FleetEvent, WorkerConnected, WorkerDisconnected, WorkerNote
from mudroom.ext.fleet.origin.link import Transport
from mudroom.ext.fleet.origin.run import FleetErrand, FleetRun, FrontEnd, RunRequest, begin, resume
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.transfer.archives import export_file
from mudroom.session import Session


class RunHere(NamedTuple):
    run: FleetRun
    reports: list[FleetEvent]
    lines: list[str]

    def states(self) -> list[tuple[str, int, str, str]]:
        """Return each attempt's label, number, state and fork."""
        return [(errand.label, row.attempt, row.state, row.fork) for errand, row in self.run.rows()]

    def rows(self) -> list[AttemptRow]:
        return [row for _errand, row in self.run.rows()]

    def reasons(self) -> str:
        """Return all texts that a user would see."""
        events = [text for event in self.reports for text in _texts(event)]
        return "\n".join([*events, *self.lines, *(row.reason for row in self.rows())])


def _texts(event: FleetEvent) -> list[str]:
    if isinstance(event, WorkerConnected):
        hello = event.hello
        return [hello.mudroom, hello.arch, hello.kernel, hello.engine, *hello.nodes]
    if isinstance(event, WorkerDisconnected):
        return [event.reason, event.hint]
    if isinstance(event, WorkerNote):
        return [event.text]
    outcome = event.row.outcome
    claims = (outcome.reason, outcome.fingerprint, outcome.state, *outcome.notes) if outcome is not None else ()
    return [event.row.reason, *claims]


def idle_front_end() -> FrontEnd:
    """Return the front end of a run that is not followed."""

    def start(worker: FleetWorker) -> Transport:
        raise AssertionError(f"{worker.name} is started")

    return FrontEnd(start, {})


Follow = Callable[..., RunHere]
__all__ = ["Follow", "RunHere", "archive", "follow", "idle_front_end", "session"]


@pytest.fixture
def session(place: Place) -> Session:
    place.write("a.txt", "one\n")
    place.write("src/b.txt", "two\n")
    place.write(".env", "TOKEN=abc\n")
    return place.session()


@pytest.fixture
def archive(session: Session, tmp_path: Path) -> bytes:
    """An archive as a worker makes it: one file changed, one added."""
    path = os.fsencode(tmp_path / "away.tar.gz")
    fork = session.run([b"sh", b"-c", b"echo more >> a.txt; echo new > new"]).fork
    export_file(session, fork, path)
    session.forks.discard(fork)
    return Path(os.fsdecode(path)).read_bytes()


@pytest.fixture
def follow(session: Session, monkeypatch: pytest.MonkeyPatch) -> Follow:
    """Return a function that follows a run on a scripted fleet to its end."""
    monkeypatch.setattr(dispatcher, "TICK", 0.02)
    monkeypatch.setattr(worker_session, "_RETRY_DELAYS", (0.01,))

    def follow(
        fleet: ScriptedFleet,
        count: int = 1,
        lease: float = 0.2,
        again: str = "",
        wanted: frozenset[tuple[str, int]] = frozenset(),
        of: Session = session,
        **request: Any,
    ) -> RunHere:
        reports: list[FleetEvent] = []
        lines: list[str] = []
        front_end = FrontEnd(
            fleet.start, {}, reports.append, lambda printed, text: lines.append(f"{printed.errand.label}| {text}"),
            lease=lease,
        )  # fmt: skip
        if again:
            run = resume(session, again, {worker.name: worker for worker in fleet.workers}, front_end, wanted)
        else:
            errands = tuple(FleetErrand((b"true", b"%d" % number)) for number in range(count))
            run = begin(of, RunRequest(errands, **request), fleet.workers, front_end)
        with run:
            for _settled in run.settled():
                pass
        return RunHere(run, reports, lines)

    return follow
