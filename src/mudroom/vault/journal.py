"""The journal of one vault: an insert-only SQLite table, each row chained to the one before (``core/event.py``)."""

from __future__ import annotations

import json
import os
import sqlite3
from _thread import allocate_lock
from collections.abc import Iterator, Mapping
from typing import Any

from mudroom.core.event import GENESIS, Event, digest_of, first_broken
from mudroom.errors import MudroomError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, fork TEXT NOT NULL,
    data TEXT NOT NULL, digest TEXT NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS event_is_never_changed BEFORE UPDATE ON event
    BEGIN SELECT RAISE(ABORT, 'the journal is insert-only'); END;
CREATE TRIGGER IF NOT EXISTS event_is_never_removed BEFORE DELETE ON event
    BEGIN SELECT RAISE(ABORT, 'the journal is insert-only'); END;
"""


class Journal:
    """Safe to use from several threads, one at a time."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._lock = allocate_lock()
        self._database: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            fresh = not os.path.exists(self._path)
            # Autocommit; a writer waits up to 30 s for another one.
            database = sqlite3.connect(
                os.fsdecode(self._path), timeout=30, isolation_level=None, check_same_thread=False
            )
            if fresh:
                database.execute("PRAGMA journal_mode=WAL")
                database.executescript(_SCHEMA)
            # In WAL mode NORMAL loses at most the last events in a power cut, never the chain: sqlite.org/pragma.html
            database.execute("PRAGMA synchronous=NORMAL")
            self._database = database
        return self._database

    def append(self, kind: str, fork: str, data: Mapping[str, Any], *, time: int) -> int:
        """Add one event; returns its number. ``data`` is anything JSON can say."""
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
        with self._lock, self._named_errors():
            database = self._open()
            database.execute("BEGIN IMMEDIATE")
            try:
                last = database.execute("SELECT number, digest FROM event ORDER BY number DESC LIMIT 1").fetchone()
                number, previous = (last[0] + 1, last[1]) if last else (1, GENESIS)
                row = (number, time, kind, fork, text)
                database.execute("INSERT INTO event VALUES (?,?,?,?,?,?)", (*row, digest_of(previous, *row)))
                database.execute("COMMIT")
            except BaseException:
                database.execute("ROLLBACK")
                raise
        return int(number)

    def events(self, *, last: int | None = None) -> Iterator[Event]:
        """All events, oldest first, or the ``last`` so many."""
        limit = -1 if last is None else last
        query = "SELECT * FROM (SELECT * FROM event ORDER BY number DESC LIMIT ?) ORDER BY number"
        with self._named_errors():
            for row in self._open().execute(query, (limit,)):
                yield Event(*row)

    def events_after(self, number: int, kind: str) -> list[Event]:
        """The events of one kind that are newer than that number, oldest first."""
        query = "SELECT * FROM event WHERE number > ? AND kind = ? ORDER BY number"
        with self._named_errors():
            return [Event(*row) for row in self._open().execute(query, (number, kind))]

    def verify(self) -> int | None:
        """The number of the first event that was tampered with, or that follows a gap; None if all is well."""
        return first_broken(self.events())

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _named_errors(self) -> _NamedErrors:
        return _NamedErrors(self._path)


class _NamedErrors:
    """Turns a database error into one that names the file. (contextlib costs import time on the fast path.)"""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise MudroomError(
                f"the journal {os.fsdecode(self._path)} cannot be used: {error}",
                "if it is damaged, move it aside; forks and applies do not depend on it",
            ) from error
