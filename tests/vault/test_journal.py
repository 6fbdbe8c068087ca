"""The journal: insert-only, chained, and any edit is found."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from mudroom.errors import MudroomError
from mudroom.vault.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def filled(path: Path, count: int = 5) -> Journal:
    journal = Journal(os.fsencode(path))
    for number in range(count):
        journal.append("run", f"fork{number}", {"n": number, "text": "naïve \x1b ☃"}, time=1000 + number)
    return journal


def test_events_come_back_in_order(path: Path) -> None:
    journal = filled(path)
    assert [event.number for event in journal.events()] == [1, 2, 3, 4, 5]
    assert [event.fork for event in journal.events(last=2)] == ["fork3", "fork4"]
    assert journal.verify() is None
    journal.close()


def test_rows_cannot_be_changed_or_removed(path: Path) -> None:
    filled(path).close()
    with sqlite3.connect(path) as database:
        for statement in ("UPDATE event SET fork = 'x'", "DELETE FROM event"):
            with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
                database.execute(statement)
    database.close()


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        ("UPDATE event SET data = '{}' WHERE number = 3", 3),
        ("UPDATE event SET time = time + 1 WHERE number = 1", 1),
        ("DELETE FROM event WHERE number = 2", 3),
        ("UPDATE event SET fork = 'other' WHERE number = 5", 5),
    ],
)
def test_an_edit_by_hand_is_found(path: Path, statement: str, broken: int) -> None:
    filled(path).close()
    database = sqlite3.connect(path)
    for trigger in ("event_is_never_changed", "event_is_never_removed"):
        database.execute(f"DROP TRIGGER {trigger}")
    database.execute(statement)
    database.commit()
    database.close()
    journal = Journal(os.fsencode(path))
    assert journal.verify() == broken
    journal.close()


def test_two_writers_make_one_chain(path: Path) -> None:
    filled(path, 1).close()

    def write() -> None:
        journal = Journal(os.fsencode(path))
        for number in range(50):
            journal.append("run", "f", {"n": number}, time=number)
        journal.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    journal = Journal(os.fsencode(path))
    assert len(list(journal.events())) == 201
    assert journal.verify() is None
    journal.close()


def test_a_damaged_file_is_named(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 100)
    journal = Journal(os.fsencode(path))
    with pytest.raises(MudroomError, match=r"journal\.db cannot be used"):
        journal.append("run", "f", {}, time=1)
    journal.close()
