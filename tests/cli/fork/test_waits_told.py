"""A verb that waits for another process says so once, and names it. A short wait is not mentioned."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Place
from mudroom.vault.lock import PATIENCE, Lock, wait_for
from test_vault_verb import Cli

pytestmark = pytest.mark.both_users


@pytest.mark.parametrize(
    "arguments",
    [["exec", "--fork", "f", "--", "true"], ["checkpoint", "again"], ["rollback", "--yes", "first"]],
    ids=lambda arguments: arguments[0],
)
def test_a_busy_fork(place: Place, arguments: list[str]) -> None:
    with place.session() as session:
        session.run([b"sh", b"-c", b"echo 1 > new"], fork="f")
        session.forks.checkpoint("f", "first")
        busy = Lock(session.vault.fork("f").path + b"/lock")
        busy.acquire("a test's command")
        process = Cli(place).start(*arguments, text=True)
        assert process.stderr is not None
        first = process.stderr.readline()
        busy.release()
        _output, rest = process.communicate(timeout=60)
    assert first == "waiting for a test's command to end; Ctrl-C to give up\n"
    assert process.returncode == 0, rest
    assert "waiting" not in rest


def test_a_vault_that_another_has_alone(place: Place) -> None:
    with place.session() as session:
        with session.alone("`mudroom apply f` (process 1)"):
            process = Cli(place).start("exec", "--fork", "f", "--", "true", text=True)
            assert process.stderr is not None
            first = process.stderr.readline()
        _output, rest = process.communicate(timeout=60)
    assert first == "waiting for `mudroom apply f` (process 1) to end; Ctrl-C to give up\n"
    assert process.returncode == 0, rest
    assert "waiting" not in rest


def test_a_short_wait_is_not_told(tmp_path: Path) -> None:
    path = bytes(tmp_path / "lock")
    first, second = Lock(path), Lock(path)
    told: list[str] = []
    first.acquire("the first")
    assert not second.acquire_now()
    first.release()
    second.acquire("the second", told.append, PATIENCE)
    second.release()
    assert told == []


def test_a_wait_is_told_once_after_the_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thing that is heard of a wait is when its patience is over, on a clock that only the waiting moves."""
    import fcntl
    import os
    import time

    path = tmp_path / "lock"
    now, events = [0.0], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    with open(path, "w") as held, open(path) as wanted:
        fcntl.flock(held, fcntl.LOCK_EX)

        def told() -> None:
            events.append(now[0])
            fcntl.flock(held, fcntl.LOCK_UN)

        wait_for(wanted.fileno(), fcntl.LOCK_SH, told, PATIENCE)
        assert len(events) == 1
        assert PATIENCE <= events[0] < PATIENCE + 0.1
        with pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert os.path.exists(path)
