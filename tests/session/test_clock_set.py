"""The wall clock is set, forwards and back: nothing waits for it, is deleted for it, or becomes a conflict."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clocks import HOUR, WallClock
from conftest import Place, tick
from mudroom.core.confinement.cache_place import NAMES
from mudroom.core.journal.event import Event
from mudroom.session import Session

DAY = 24 * HOUR


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def late(*_signal: object) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def touch(path: bytes, *, ahead: int) -> None:
    moment = time.time_ns() + ahead
    os.utime(path, ns=(moment, moment))


def applied(session: Session, number: int) -> None:
    for count in range(number):
        session.run((b"sh", b"-c", b"echo %d > f" % count), fork=f"f{count}")
        session.changes.apply(f"f{count}")


def test_no_command_waits_for_a_clock_that_was_set_back(place: Place) -> None:
    session = place.session()
    applied(session, 1)
    touch(session.vault.path + b"/applies", ahead=HOUR)
    with within(20):
        result = session.run((b"sh", b"-c", b"echo again > f"), fork="g")
        assert result.changeset is not None
        assert [change.original_known for change in result.changeset.changes] == [True]
        session.changes.apply("g")
    assert (place.project / "f").read_text() == "again\n"


@pytest.mark.parametrize("hours", [-9600, -1, 9600])
def test_files_from_before_the_clock_was_set_are_no_conflicts(place: Place, hours: int) -> None:
    place.write("f", "old\n")
    place.write("gone", "old\n")
    clock = WallClock()
    try:
        clock.ahead = hours * HOUR
        session = place.session(clock=time.time_ns)
        result = session.run((b"sh", b"-c", b"echo new > f; rm gone"), fork="f")
        assert [change.original_known for change in result.changeset.changes] == [True, True]
        assert session.changes.apply("f").conflicts == ()
        clock.ahead = 0
        session.run((b"sh", b"-c", b"echo newer > f"), fork="g")
        clock.ahead = -hours * HOUR
        assert session.changes.apply("g").conflicts == ()
        assert [session.changes.undo().conflicts for _time in range(2)] == [(), ()]
    finally:
        clock.release()
    assert (place.project / "f").read_text() == (place.project / "gone").read_text() == "old\n"


def test_one_command_with_the_clock_ahead_deletes_nothing(place: Place) -> None:
    session = place.session()
    applied(session, 3)
    session.run((b"sh", b"-c", b"echo a > a"), fork="w")
    with session.forks.at_rest("w") as fork:
        session.forks.checkpoint_before(fork, (b"true",), 50)
    entry = _cached(session)
    with session.alone("gc"):
        pass
    before, points = _kept(session), _points(session)
    assert len(before) > 9
    assert points

    for years in (400 * DAY, -400 * DAY, 2 * DAY, 0):
        other = place.session(clock=lambda ahead=years: time.time_ns() + ahead)
        with other.alone("a command"):
            other.run((b"true",), fork="w")
        assert before <= _kept(other)
        assert points <= _points(other)
        assert entry.exists()
        other.close()
    assert session.vault.journal.verify() is None
    with session.alone("undo"):
        assert session.changes.undo("u3").name == "u3"


def test_redo_takes_what_was_undone_last_whatever_the_clock_says(place: Place) -> None:
    """A clock that was set back gives the plan that was renamed last an earlier ctime than the others."""
    session = place.session()
    for count in range(3):
        session.run((b"touch", b"f%d" % count), fork="f")
        session.changes.apply("f")
    with session.alone("undo"):
        for name in ("u2", "u3", "u1"):
            session.changes.undo(name)
    for number in (3, 2):
        tick()
        os.chmod(session.vault.path + b"/applies/u%d/plan.undone" % number, 0o600)
    with session.alone("redo"):
        assert [session.changes.redo().name for _time in range(3)] == ["u1", "u3", "u2"]


def _cached(session: Session) -> Path:
    pool = Path(os.fsdecode(session.vault.cache)) / "x" / "user"
    for name in NAMES:
        (pool / os.fsdecode(name)).mkdir(parents=True, exist_ok=True)
    entry = pool / "npm" / "entry"
    entry.write_text("x")
    return entry


def _kept(session: Session) -> set[str]:
    place = Path(os.fsdecode(session.vault.path))
    found = {
        str(path.relative_to(place)) for kind in ("applies", "layers", "forks") for path in (place / kind).glob("*")
    }
    return found | {f"event {event.number}" for event in _live(session)}


def _live(session: Session) -> list[Event]:
    return list(session.vault.journal.newest(archived=False))


def _points(session: Session) -> set[str]:
    return {point.name for point in session.vault.fork("w").state.checkpoints}


def test_what_is_written_just_before_a_command_is_no_edit_during_it(place: Place) -> None:
    """The clock of the file systems ticks every 1 to 10 ms, and some files are stamped by a finer one."""
    session = place.session()
    session.run((b"true",), fork="first")  # from now on, a command starts within a tick
    for count in range(10):
        name = f"new-{count}"
        (place.project / name).write_text("one\n")
        (place.project / name).stat()
        session.run((b"sh", b"-c", b"echo two >> " + name.encode()), fork=name)
        assert session.changes.apply(name).conflicts == ()


def test_what_is_written_just_before_a_mount_is_no_edit_during_it(place: Place) -> None:
    session = place.session()
    for count in range(10):
        name = f"new-{count}"
        (place.project / name).write_text("one\n")
        session.forks.new(name)
        session.forks.mount(name, os.fsencode(place.root / name), kind="copy")
        with open(place.root / name / name, "a") as stream:
            stream.write("two\n")
        session.forks.unmount(name)
        assert session.changes.apply(name).conflicts == ()
