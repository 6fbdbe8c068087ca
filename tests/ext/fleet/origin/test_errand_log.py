"""The log: its states are on the disk, states follow each other, one process acts on it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.origin.errand_log import STEPS, AttemptRow, ErrandLog, ErrandRow, RunRow
from mudroom.ext.fleet.wire.message import Errand
from whole_text import whole

MESSAGE = Errand("", 0, b"", (b"true",), b"", (), 1, b"", 0.0)


def _log(path: Path) -> ErrandLog:
    return ErrandLog(os.fsencode(path))


def _begin(log: ErrandLog, run: str, count: int = 1) -> list[str]:
    errands = [ErrandRow(f"{run}-errand-{number}", run, number, f"{run}-{number}", MESSAGE) for number in range(count)]
    log.begin_run(RunRow(run, 5, (b"true",), ("a", "b"), "all", 1), errands)
    return [row.errand for row in errands]


def test_what_was_committed_is_read_by_another_process(tmp_path: Path) -> None:
    log = _log(tmp_path)
    (errand,) = _begin(log, "r1")
    row = AttemptRow(errand, 1, "sent", "a", reason="why \N{SNOWMAN}")
    log.put(row)
    assert _log(tmp_path).attempts("r1")[0].state == "new"
    log.commit()
    other = _log(tmp_path)
    assert other.attempts("r1") == [row]
    assert other.runs() == [RunRow("r1", 5, (b"true",), ("a", "b"), "all", 1)]
    assert other.errands("r1")[0].message == MESSAGE
    assert other.origin == log.origin and len(other.origin) == 32
    assert other.next_run() == "r2"
    assert (tmp_path / "fleet/errands.db").stat().st_mode & 0o777 == 0o600


def test_states_follow_as_they_may(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for number, (state, following) in enumerate(STEPS.items()):
        for target in STEPS:
            name = f"r{number}x{target}"
            (errand,) = _begin(log, name)
            log._states[errand, 1] = state
            if target in following or target == state:
                log.put(AttemptRow(errand, 1, target))
            else:
                with pytest.raises(ValueError, match="cannot follow"):
                    log.put(AttemptRow(errand, 1, target))
    with pytest.raises(ValueError, match="cannot follow"):
        log.put(AttemptRow("unknown", 1, "kept"))


def test_one_process_acts_and_others_ask(tmp_path: Path) -> None:
    log, other = _log(tmp_path), _log(tmp_path)
    (errand,) = _begin(log, "r1")
    assert not other.has_owner()
    log.acquire("process 7")
    assert other.has_owner()
    hint = "wait until it has ended, or: mudroom fleet cancel"
    told = f"the errands of this project are in the hands of process 7 ({hint})"
    with pytest.raises(UsageError, match=whole(told)):
        other.acquire("process 8")
    other.request_cancel([errand, errand])
    assert log.take_cancel_requests() == {errand}
    assert log.take_cancel_requests() == set()
    log.close()
    other.acquire("process 8")


def test_old_runs_are_forgotten_unless_something_is_still_there(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for run, state in (("r1", "cancelled"), ("r2", "ended"), ("r3", "new")):
        (errand,) = _begin(log, run)
        row = AttemptRow(errand, 1, "new")
        (Path(os.fsdecode(log.result_directory(row))) / "stdout").write_text("said")
        for step in {"cancelled": ("cancelled",), "ended": ("sent", "accepted", "ended")}.get(state, ()):
            log.put(row._replace(state=step))
        log.commit()
        if state != "new":
            log.end_run(run)
    log.prune(1)
    assert [row.run for row in log.runs()] == ["r1", "r2", "r3"]
    log.prune(1 << 62)
    assert [row.run for row in log.runs()] == ["r2", "r3"]
    assert sorted(os.listdir(tmp_path / "fleet/held")) == ["r2-errand-0-1", "r3-errand-0-1"]
    assert log.errands("r1") == []
    assert log.attempts("r1") == []


def test_a_run_that_ends_leaves_no_empty_directory(tmp_path: Path) -> None:
    log = _log(tmp_path)
    errands = _begin(log, "r1", 2)
    said, silent = (Path(os.fsdecode(log.result_directory(AttemptRow(errand, 1, "new")))) for errand in errands)
    (said / "stdout").write_text("said")
    log.end_run("r1")
    assert said.exists() and not silent.exists()


def test_a_damaged_or_newer_log_is_one_line(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log._database.execute("UPDATE about SET format = 9")
    log.close()
    with pytest.raises(MudroomError, match="has format 9"):
        _log(tmp_path)
    for name in os.listdir(tmp_path / "fleet"):
        (tmp_path / "fleet" / name).unlink()
    (tmp_path / "fleet/errands.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(MudroomError, match="cannot be used"):
        _log(tmp_path)
    (tmp_path / "fleet/errands.db").unlink()
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "fleet/errands.db").symlink_to(tmp_path / "victim")
    with pytest.raises((MudroomError, OSError)):
        _log(tmp_path)
    assert (tmp_path / "victim").read_bytes() == b""


def test_damaged_rows_are_one_line(tmp_path: Path) -> None:
    log = _log(tmp_path)
    _begin(log, "r1")
    for table, column in (("run", "command"), ("errand", "message"), ("attempt", "outcome")):
        log._database.execute(f"UPDATE {table} SET {column} = x'c1c1'")
    for read in (log.runs, lambda: log.errands("r1"), lambda: log.attempts("r1")):
        with pytest.raises(MudroomError, match=r"\Athe errand log is damaged: .* \(forks are not affected by it\)\Z"):
            read()
    log._database.execute("DROP TABLE run")
    told = "the errand log cannot be read: no such table: run (forks are not affected by it)"
    with pytest.raises(MudroomError, match=whole(told)):
        log.runs()
    log.close()


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log(tmp_path)
    (errand,) = _begin(log, "r1")

    class Full:
        def execute(self, statement: str, *_values: object) -> None:
            if statement.startswith("BEGIN"):
                raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(log, "_database", Full())
    log._states[errand, 1] = "new"
    log.put(AttemptRow(errand, 1, "sent"))
    told = "the errand log cannot be written: database or disk is full"
    hint = "make room on the disk; mudroom fleet resume goes on"
    with pytest.raises(MudroomError, match=whole(f"{told} ({hint})")):
        log.commit()
