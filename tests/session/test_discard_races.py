"""Two that discard at once, as the losers of many attempts are: in threads of a session and in processes, nobody
fails, nothing is left, and each fork is discarded by one of them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.synchronize import Barrier as MeetingPoint
from typing import Any

import pytest

from conftest import Place
from mudroom.errors import ForkGone, MudroomError, UsageError
from mudroom.session import Session
from mudroom.vault.retention.check import check
from mudroom.vault.store.fork import Fork
from tiers import QUICK
from whole_text import whole

ROUNDS = 10 if QUICK else 1000
PARTIES = 4


def make(session: Session, count: int) -> list[str]:
    names = [f"f{number}" for number in range(count)]
    for name in names:
        fork = session.vault.new_fork(name)
        os.makedirs(fork.upper + b"/d")
        for number in range(5):
            with open(fork.upper + b"/d/%d" % number, "wb") as stream:
                stream.write(b"x" * 100)
    return names


def together(session: Session, names: list[str], errors: list[Exception], discarded: list[str]) -> None:
    """Discard in threads: each its own forks, and one that all of them want."""
    start = threading.Barrier(PARTIES)

    def discard(party: int) -> None:
        start.wait()
        for name in (*names[1 + party :: PARTIES], names[0]):
            try:
                session.forks.discard(name)
                discarded.append(name)
            except (ForkGone, UsageError):
                if name != names[0]:
                    raise

    def run(party: int) -> None:
        try:
            discard(party)
        except Exception as error:  # noqa: BLE001 - told by the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(party,)) for party in range(PARTIES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_of_a_session(place: Place) -> None:
    session = place.session()
    for number in range(ROUNDS):
        names = make(session, 9)
        errors: list[Exception] = []
        discarded: list[str] = []
        together(session, names, errors, discarded)
        assert errors == [], number
        assert sorted(discarded) == names, number
    assert_empty(session)
    assert_told(session)


@pytest.mark.limit(600)
def test_processes(place: Place) -> None:
    session = place.session()
    context = multiprocessing.get_context("fork")
    meeting = context.Barrier(PARTIES + 1)
    processes = [context.Process(target=work, args=(place, meeting, party)) for party in range(PARTIES)]
    for process in processes:
        process.start()
    try:
        for _round in range(ROUNDS):
            make(session, 9)
            meeting.wait(60)
            meeting.wait(60)
            assert session.vault.forks() == []
    except BaseException:
        meeting.abort()
        raise
    finally:
        for process in processes:
            process.join(60)
    assert [process.exitcode for process in processes] == [0] * PARTIES
    assert_empty(session)
    assert_told(session)


def work(place: Place, meeting: MeetingPoint, party: int) -> None:
    """Discard in a process of its own. A process that fails breaks the meeting, and all of them end."""
    session = place.session()
    try:
        for _round in range(ROUNDS):
            meeting.wait(60)
            for name in (*[f"f{number}" for number in range(1 + party, 9, PARTIES)], "f0"):
                try:
                    session.forks.discard(name)
                except (ForkGone, UsageError):
                    if name != "f0":
                        raise
            meeting.wait(60)
    except BaseException:
        meeting.abort()
        raise


def assert_empty(session: Session) -> None:
    assert session.vault.forks() == []
    session.vault.empty_trash()
    assert [os.listdir(session.vault.path + b"/" + name) for name in (b"layers", b"trash")] == [[], []]
    assert check(session.vault) == []


def assert_told(session: Session) -> None:
    told = [event.fork for event in session.vault.journal.events(last=9 * ROUNDS + 1) if event.kind == "discard"]
    assert sorted(told) == sorted([f"f{number}" for number in range(9)] * ROUNDS)


def test_a_fork_that_is_discarded_before_each_try(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its lock, by another session."""
    session, other = place.session(), place.session()
    acquire = session.sandboxes.acquire

    def late(fork: Fork, *words: Any) -> Any:
        other.forks.discard(fork.name)
        return acquire(fork, *words)

    monkeypatch.setattr(session.sandboxes, "acquire", late)
    monkeypatch.setattr("mudroom.session.run._TRIES", 3)
    with pytest.raises(MudroomError, match=whole("the fork f is discarded again and again (choose another name)")):
        session.run([b"true"], fork="f")
    assert_empty(session)
