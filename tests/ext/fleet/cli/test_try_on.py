"""``mudroom try --on``: attempts on workers, whose forks are judged here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from origin_fixtures import archive, session
from scripted_worker import ScriptedFleet, ScriptedWorker

from conftest import Place, environment
from forked import run
from mudroom.ext.attempts.session.attempts import Attempts, start
from mudroom.ext.attempts.session.request import AttemptRequest
from mudroom.ext.attempts.value import AttemptRecord
from mudroom.ext.fleet.cli.run_on_worker import AttemptsThere
from mudroom.ext.fleet.origin import dispatcher, worker_session
from mudroom.ext.fleet.origin.run import FleetErrand, FrontEnd, RunRequest
from mudroom.ext.fleet.wire import message as wire
from mudroom.session import Session

__all__ = ["archive", "session"]
Try = Callable[..., Attempts]


@pytest.fixture
def attempt(session: Session, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Return a function that tries a command on a scripted fleet."""
    monkeypatch.setattr(dispatcher, "TICK", 0.02)
    monkeypatch.setattr(worker_session, "_RETRY_DELAYS", (0.01,))

    def attempt(fleet: ScriptedFleet, count: int = 2, retry: int = 0, **request: Any) -> Attempts:
        def there(name: str, attempts: Any) -> AttemptsThere:
            errands = tuple(FleetErrand(words, f"{name}-{number}") for number, words in enumerate(attempts.commands, 1))
            run = RunRequest(errands, judge=attempts.judge, retry=retry)
            return AttemptsThere(session, run, fleet.workers, FrontEnd(fleet.start, {}, lease=0.2))

        commands = ((b"true",),) * count
        with start(session, AttemptRequest(commands, elsewhere=there, **request)) as running:
            for _attempt in running:
                pass
        return running

    return attempt


def rows(running: Attempts) -> list[tuple[int, str, str, str]]:
    return [(row.number, row.state, row.fork, row.note) for row in running.record.attempts]


def claims(judged: int) -> Callable[[ScriptedWorker, wire.Errand, int], None]:
    """Return what a worker does that says of each errand that its judge ended so."""

    def answer(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
        worker.send(wire.OUTCOME, worker.outcome(errand)._replace(judged=judged), stream)

    return answer


@pytest.mark.parametrize(("judge", "passes"), [(b"grep -q more a.txt", True), (b"grep -q other a.txt", False)])
@pytest.mark.parametrize("claimed", [0, 1])
def test_the_verdict_is_made_here_whatever_the_worker_says(
    session: Session, attempt: Try, archive: bytes, judge: bytes, claimed: int, *, passes: bool
) -> None:
    fleet = ScriptedFleet(a=lambda: ScriptedWorker(archive, errand=claims(claimed)))
    running = attempt(fleet, judge=(b"sh", b"-c", judge))
    state, said = "passed" if passes else "failed", "fails" if claimed else "passes"
    note = f"on a, where the judge {said}"
    assert rows(running) == [(number, state, f"t1-{number}", note) for number in (1, 2)]
    assert running.record.best == (1 if passes else 0)
    assert {fork.name for fork in session.vault.forks()} == {"t1-1", "t1-2"}


def _dies(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
    worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
    worker.end()


@pytest.mark.parametrize("retry", [0, 1])
def test_an_attempt_whose_worker_dies_is_told_or_repeated(attempt: Try, archive: bytes, retry: int) -> None:
    makers: Iterator[Callable[[], ScriptedWorker]] = itertools.chain(
        [lambda: ScriptedWorker(errand=_dies)], itertools.repeat(lambda: ScriptedWorker(archive))
    )

    def started() -> ScriptedWorker:
        return next(makers)()

    fleet = ScriptedFleet(a=started)
    ((_number, state, fork, note),) = rows(attempt(fleet, 1, retry, judge=(b"true",)))
    if retry:
        assert (state, fork, note) == ("passed", "t1-1", "on a")
    else:
        assert (state, fork) == ("error", "") and note.startswith("a: lost: ")
    assert len(fleet.received("a", wire.ERRAND)) == 1 + retry


def test_enough_that_have_passed_end_the_others(attempt: Try, archive: bytes) -> None:
    def only_first(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
        if errand.number == 1:
            worker.send(wire.OUTCOME, worker.outcome(errand), stream)

    fleet = ScriptedFleet(a=lambda: ScriptedWorker(archive, errand=only_first))
    running = attempt(fleet, 4, judge=(b"true",), until=1)
    assert running.record.end == "until"
    states = [(row.number, row.state) for row in running.record.attempts]
    assert states == [(1, "passed"), (2, "ended early"), (3, "ended early"), (4, "ended early")]
    cancelled = {wire.message_of(frame, wire.CancelErrand).errand for frame in fleet.received("a", wire.CANCEL)}
    assert len(cancelled) == 3


def test_an_attempt_that_changes_nothing_is_judged_as_the_project(attempt: Try) -> None:
    running = attempt(ScriptedFleet(a=ScriptedWorker), 1, judge=(b"sh", b"-c", b"grep -q one a.txt"))
    row: AttemptRecord = running.record.attempts[0]
    assert (row.state, row.fork, row.files) == ("passed", "", 0)


def test_what_cannot_go_to_a_worker_is_refused_in_one_line(place: Place) -> None:
    for words, said in (
        (("--on", "w", "--from", "k1"), "--from is not for --on: a worker begins with the project, not with a fork"),
        (("--on", "w", "--jobs", "2"), "--jobs is not for --on: each worker has its own number"),
        (("--on", "w", "--card", "x"), "--card is not for --on: a card stays on this machine"),
        (("--on", "w", "--engine"), "--engine is not for --on: an engine runs beside a command of this machine"),
        (("--on", "w", "--home"), "--home is not for --on: a home directory stays on this machine"),
        (("--retry", "1"), "--retry is for workers, and none is named"),
        (("--gpus", "1"), "--gpus is for workers, and none is named"),
        (("--on", "w"), "there is no worker named w"),
    ):
        done = run(["try", *words, "--", "true"], cwd=place.project, env=environment(place))
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (125, True, 1), done.stderr


def test_a_home_that_the_policy_stages_does_not_go_to_a_worker(place: Place) -> None:
    place.write(".mudroom/policy.yaml", "run:\n  home: staged\n")
    run(["fleet", "add", "w", "--", "true"], cwd=place.project, env=environment(place))
    done = run(["try", "--on", "w", "--", "true"], cwd=place.project, env=environment(place))
    said = "mudroom: a staged home stays on this machine (leave --on out: mudroom policy show has run.home)\n"
    assert (done.returncode, done.stderr) == (125, said)
