"""The book: what it says is on the disk, states follow each other, one process acts on it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.origin.book import AttemptRow, ErrandBook, ErrandRow, RunRow
from mudroom.ext.fleet.wire.errand import STEPS
from mudroom.ext.fleet.wire.message import Errand
from whole_text import whole

MESSAGE = Errand("", 0, b"", (b"true",), b"", (), 1, b"", 0.0)


def _book(path: Path) -> ErrandBook:
    return ErrandBook(os.fsencode(path))


def _begin(book: ErrandBook, run: str, count: int = 1) -> list[str]:
    errands = [ErrandRow(f"{run}-errand-{number}", run, number, f"{run}-{number}", MESSAGE) for number in range(count)]
    book.begin(RunRow(run, 5, (b"true",), ("a", "b"), "all", 1), errands)
    return [row.errand for row in errands]


def test_what_was_committed_is_read_by_another_process(tmp_path: Path) -> None:
    book = _book(tmp_path)
    (errand,) = _begin(book, "r1")
    row = AttemptRow(errand, 1, "sent", "a", reason="why \N{SNOWMAN}")
    book.put(row)
    assert _book(tmp_path).attempts("r1")[0].state == "new"
    book.commit()
    other = _book(tmp_path)
    assert other.attempts("r1") == [row]
    assert other.runs() == [RunRow("r1", 5, (b"true",), ("a", "b"), "all", 1)]
    assert other.errands("r1")[0].message == MESSAGE
    assert other.origin == book.origin and len(other.origin) == 32
    assert other.next_run() == "r2"
    assert (tmp_path / "fleet/errands.db").stat().st_mode & 0o777 == 0o600


def test_states_follow_as_they_may(tmp_path: Path) -> None:
    book = _book(tmp_path)
    for number, (state, following) in enumerate(STEPS.items()):
        for target in STEPS:
            name = f"r{number}x{target}"
            (errand,) = _begin(book, name)
            book._known[errand, 1] = state
            if target in following or target == state:
                book.put(AttemptRow(errand, 1, target))
            else:
                with pytest.raises(ValueError, match="cannot follow"):
                    book.put(AttemptRow(errand, 1, target))
    with pytest.raises(ValueError, match="cannot follow"):
        book.put(AttemptRow("unknown", 1, "kept"))


def test_one_process_acts_and_others_ask(tmp_path: Path) -> None:
    book, other = _book(tmp_path), _book(tmp_path)
    (errand,) = _begin(book, "r1")
    assert not other.has_owner()
    book.own("process 7")
    assert other.has_owner()
    hint = "wait until it has ended, or: mudroom fleet cancel"
    told = f"the errands of this project are in the hands of process 7 ({hint})"
    with pytest.raises(UsageError, match=whole(told)):
        other.own("process 8")
    other.ask_to_cancel([errand, errand])
    assert book.to_cancel() == {errand}
    assert book.to_cancel() == set()
    book.close()
    other.own("process 8")


def test_old_runs_are_forgotten_unless_something_is_still_there(tmp_path: Path) -> None:
    book = _book(tmp_path)
    for run, state in (("r1", "cancelled"), ("r2", "ended"), ("r3", "new")):
        (errand,) = _begin(book, run)
        row = AttemptRow(errand, 1, "new")
        (Path(os.fsdecode(book.held(row))) / "stdout").write_text("said")
        for step in {"cancelled": ("cancelled",), "ended": ("sent", "accepted", "ended")}.get(state, ()):
            book.put(row._replace(state=step))
        book.commit()
        if state != "new":
            book.end(run)
    book.forget(1)
    assert [row.run for row in book.runs()] == ["r1", "r2", "r3"]
    book.forget(1 << 62)
    assert [row.run for row in book.runs()] == ["r2", "r3"]
    assert sorted(os.listdir(tmp_path / "fleet/held")) == ["r2-errand-0-1", "r3-errand-0-1"]
    assert book.errands("r1") == []
    assert book.attempts("r1") == []


def test_a_damaged_or_newer_book_is_one_line(tmp_path: Path) -> None:
    book = _book(tmp_path)
    book._database.execute("UPDATE about SET format = 9")
    book.close()
    with pytest.raises(MudroomError, match="has format 9"):
        _book(tmp_path)
    for name in os.listdir(tmp_path / "fleet"):
        (tmp_path / "fleet" / name).unlink()
    (tmp_path / "fleet/errands.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(MudroomError, match="cannot be used"):
        _book(tmp_path)
    (tmp_path / "fleet/errands.db").unlink()
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "fleet/errands.db").symlink_to(tmp_path / "victim")
    with pytest.raises((MudroomError, OSError)):
        _book(tmp_path)
    assert (tmp_path / "victim").read_bytes() == b""


def test_damaged_rows_are_one_line(tmp_path: Path) -> None:
    book = _book(tmp_path)
    _begin(book, "r1")
    for table, column in (("run", "command"), ("errand", "message"), ("attempt", "outcome")):
        book._database.execute(f"UPDATE {table} SET {column} = x'c1c1'")
    for read in (book.runs, lambda: book.errands("r1"), lambda: book.attempts("r1")):
        with pytest.raises(
            MudroomError, match=r"\Athe book of errands is damaged: .* \(forks are not affected by it\)\Z"
        ):
            read()
    book._database.execute("DROP TABLE run")
    told = "the book of errands cannot be read: no such table: run (forks are not affected by it)"
    with pytest.raises(MudroomError, match=whole(told)):
        book.runs()
    book.close()


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = _book(tmp_path)
    (errand,) = _begin(book, "r1")

    class Full:
        def execute(self, statement: str, *_values: object) -> None:
            if statement.startswith("BEGIN"):
                raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(book, "_database", Full())
    book._known[errand, 1] = "new"
    book.put(AttemptRow(errand, 1, "sent"))
    told = "the book of errands cannot be written: database or disk is full"
    hint = "make room on the disk; mudroom fleet resume goes on"
    with pytest.raises(MudroomError, match=whole(f"{told} ({hint})")):
        book.commit()
