"""A link's lease, worker crashes, and an origin that is gone and comes back. Nothing here waits by the clock: a test
waits for a frame, or for a process to end."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_origin import Ended, ScriptedOrigin, WorkerProcess
from worker_fixtures import origin, process, project, start, started, worker_home

from mudroom.ext.fleet.wire import message
from tiers import QUICK, SEED, sample

__all__ = ["origin", "process", "project", "start", "started", "worker_home"]  # fixtures

Worker = Callable[..., ScriptedOrigin]
WRITES = "echo kept > kept; echo up; exec sleep 1000"


def kill(worker: ScriptedOrigin) -> None:
    assert isinstance(worker.worker, WorkerProcess)
    worker.worker.kill()


def running(worker: ScriptedOrigin, project: Path, script: str = WRITES, lease: float = 60.0) -> int:
    """Return the stream of an errand whose command has printed."""
    worker.hello(lease)
    stream = worker.sh(worker.send_base(project), script)
    worker.expect(message.OUT, stream)
    return stream


def test_a_lease_without_contact_ends_the_command_and_keeps_its_outcome(start: Worker, project: Path) -> None:
    worker = start()
    outcome = worker.outcome(running(worker, project, lease=0.5))
    assert (outcome.state, outcome.signal, outcome.added) == ("expired", 15, 1)
    worker.send(message.PING, message.Ping(1))
    worker.expect(message.PONG)  # the link goes on
    assert worker.fetch(outcome)
    base = worker.send_base(project)
    assert worker.outcome(worker.start(base, "true", name="errand-0002")).state == "ended"


def test_pings_keep_the_lease(start: Worker, project: Path) -> None:
    worker = start()
    stream = running(worker, project, "echo up; sleep 1.2; echo late", lease=0.5)
    number = 0
    while not any(frame.kind == message.OUTCOME for frame in worker.received):
        number += 1
        worker.send(message.PING, message.Ping(number))
        worker.expect(message.PONG)
        try:
            worker.next(0.1)
        except TimeoutError:
            continue
    assert worker.printed(stream) == b"up\nlate\n"


def test_a_question_is_denied_when_the_lease_runs_out(start: Worker, project: Path) -> None:
    from test_worker import ASKS

    worker = start()
    worker.hello(lease=0.5)
    stream = worker.start(worker.send_base(project), "rm", "a.txt", agent="coder", settings=ASKS)
    worker.expect(message.ASK, stream)
    assert worker.outcome(stream).state in ("refused", "expired")


@pytest.mark.parametrize("way", ["killed", "bye"])
def test_commands_of_an_origin_that_is_gone_end_with_the_lease(start: Worker, project: Path, way: str) -> None:
    worker = start()
    running(worker, project, lease=0.5)
    if way == "bye":
        worker.send(message.BYE, message.Bye("gone"))
    else:
        worker.disconnect()
    assert worker.wait() == 0
    again = start()
    assert [(held.errand, held.state) for held in again.hello().held] == [("errand-0001", "expired")]
    stream = again.fetch_outcome("errand-0001")
    outcome = again.outcome(stream)
    assert (outcome.state, outcome.added) == ("expired", 1) and again.printed(stream) == b"up\n"
    assert again.fetch(outcome)


def test_an_origin_that_comes_back_keeps_its_commands(start: Worker, project: Path) -> None:
    worker = start()
    running(worker, project, "echo up; sleep 2; echo done; echo x > x", lease=1.5)
    worker.disconnect()
    again = start()
    assert [held.state for held in again.hello(1.5).held] == ["accepted"]
    stream = again.fetch_outcome("errand-0001")
    while True:
        again.send(message.PING, message.Ping(1))
        try:
            frame = again.next(0.2)
        except TimeoutError:
            continue
        if frame.kind == message.OUTCOME:
            break
    assert again.printed(stream) == b"up\ndone\n"
    assert worker.wait() == 0


def test_an_errand_of_an_earlier_worker_process_can_be_cancelled(start: Worker, project: Path) -> None:
    worker = start()
    running(worker, project)
    worker.disconnect()
    again = start()
    again.hello()
    stream = again.fetch_outcome("errand-0001")
    again.send(message.CANCEL, message.CancelErrand("errand-0001", 1, 15), 9)
    assert again.outcome(stream).state == "cancelled"
    assert worker.wait() == 0


def test_an_errand_whose_worker_was_killed_is_lost_with_its_fork_kept(
    start: Worker, process: Worker, project: Path
) -> None:
    worker = process()
    running(worker, project)
    kill(worker)
    again = start()
    assert [(held.errand, held.state) for held in again.hello().held] == [("errand-0001", "lost")]
    stream = again.fetch_outcome("errand-0001")
    outcome = again.outcome(stream)
    assert (outcome.state, outcome.added) == ("lost", 1) and again.printed(stream) == b"up\n"
    assert again.fetch(outcome)
    assert "accepted before" in again.failure(again.offer(again.send_base(project), "true")).reason
    again.send(message.KEPT, message.Kept("errand-0001", 1))
    again.send(message.BYE, message.Bye("done"))
    assert again.wait() == 0
    assert start().hello().held == ()


def test_a_signal_ends_the_commands_and_keeps_their_outcomes(start: Worker, process: Worker, project: Path) -> None:
    worker = process()
    running(worker, project)
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait() == 0
    assert [held.state for held in start().hello().held] == ["expired"]


SCRIPT = "cat a.txt; echo x > x"


def drive(worker: ScriptedOrigin, project: Path, most: int) -> bool:
    """Take an errand's way until ``most`` frames have come. Return whether that was less than the whole way."""
    following = worker.next

    def counted(timeout: float = 60.0) -> object:
        if len(worker.received) >= most:
            raise Ended
        return following(timeout)

    worker.next = counted  # type: ignore[method-assign,assignment]
    try:
        worker.hello(0.5)
        stream = worker.sh(worker.send_base(project), SCRIPT, judge=(b"true",))
        outcome = worker.outcome(stream)
        if outcome.archive or outcome.state != "expired":  # a busy machine may let half a second pass: nothing is lost
            worker.fetch(outcome)
        worker.send(message.KEPT, message.Kept(outcome.errand, outcome.attempt))
        return False
    except Ended:
        return True


def settled(worker: ScriptedOrigin, project: Path, accepted: bool) -> None:
    """Check that a new link finds an accepted errand with its outcome and its files in an archive, and that none runs
    twice."""
    held = worker.hello().held
    assert len(held) <= 1 and (held or not accepted)
    if held:
        stream = worker.fetch_outcome("errand-0001")
        outcome = worker.outcome(stream)
        assert outcome.state in ("ended", "lost", "expired")
        assert outcome.state != "ended" or (outcome.added, worker.printed(stream)) == (1, b"one\n")
        assert not outcome.archive or len(worker.fetch(outcome)) == outcome.archive
        again = worker.failure(worker.offer(worker.send_base(project), "true"))
        assert "accepted before" in again.reason
    else:
        assert worker.outcome(worker.sh(worker.send_base(project), SCRIPT)).state == "ended"


def end_at(kind: Worker, start: Worker, project: Path, most: int) -> bool:
    """End a worker's link after so many frames: a process is killed, a thread's origin goes. Check what a new link
    finds. Return False if there are not so many frames."""
    name = os.urandom(16).hex()
    worker = kind(name=name)
    is_part = drive(worker, project, most)
    accepted = any(frame.kind == message.ACCEPTED for frame in worker.received)
    if isinstance(worker.worker, WorkerProcess):
        worker.worker.kill()
    worker.close()
    if is_part:
        again = start(name=name)
        settled(again, project, accepted)
        again.close()
    return is_part


FRAMES = 9
"""At least so many frames come on the whole way."""


def test_a_worker_that_is_killed_at_any_frame_loses_nothing_and_runs_nothing_twice(
    start: Worker, process: Worker, project: Path
) -> None:
    for most in sorted(random.Random(SEED).sample(range(1, FRAMES), sample(FRAMES - 1))):
        assert end_at(process, start, project, most)


def test_an_origin_that_goes_at_any_frame_loses_nothing_and_runs_nothing_twice(start: Worker, project: Path) -> None:
    for most in sorted(random.Random(SEED).sample(range(1, FRAMES), 2 if QUICK else FRAMES - 1)):
        assert end_at(start, start, project, most)


@pytest.mark.deep
@pytest.mark.limit(900)
def test_two_hundred_ends(start: Worker, process: Worker, project: Path) -> None:
    for number in range(100):
        end_at(process, start, project, 1 + number % 14)
        end_at(start, start, project, 1 + number % 14)
