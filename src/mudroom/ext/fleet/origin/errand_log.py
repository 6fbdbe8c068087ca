"""Write-ahead log for a project's errands: which worker was asked for each, and how far it came.

    <vault>/fleet/errands.db        this log (SQLite, WAL)
    <vault>/fleet/lock              flock(2): the one process that acts on it
    <vault>/fleet/held/<id>-<n>/    for an attempt: archive (as far as it came), stdout, stderr

Rules of this file:
1. A state is committed, and the disk has it, before it is acted on: a frame that follows from a state is sent after
   ``commit``. So a process that is killed at any point leaves a log that says at least as much as a worker knows.
2. States only follow each other as ``STEPS`` allows.
3. One process acts on a project's errands. Others read, and leave requests to cancel.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.wire.message import Errand, ErrandOutcome
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.lock import LOCK_SH, Lock, try_lock

# --- Errand states and the steps between them ---
#     new → sent → accepted → ended → fetched → kept
#                      └→ lost (its worker is gone)   └→ refused, failed, cancelled, expired (ended without a result)
#
# A state is written to the origin's log before it is acted on. After ``accepted`` a command may have had effects
# outside its fork, so an errand whose worker is gone is ``lost``. It is not sent again, unless the user asked for
# retries.


STEPS: Mapping[str, frozenset[str]] = {
    "new": frozenset({"sent", "cancelled", "failed"}),
    "sent": frozenset({"accepted", "refused", "failed", "lost", "new", "cancelled"}),
    "accepted": frozenset({"ended", "refused", "failed", "cancelled", "expired", "lost"}),
    "ended": frozenset({"fetched", "kept", "failed"}),
    "fetched": frozenset({"kept"}),
    "lost": frozenset({"new", "late"}),
    "late": frozenset({"fetched", "kept", "failed"}),
    "refused": frozenset(),
    "failed": frozenset({"new"}),
    "cancelled": frozenset(),
    "expired": frozenset({"fetched", "new"}),
    "kept": frozenset(),
}
"""The states that may follow each. ``sent`` → ``new``: the worker never accepted it. ``lost`` → ``late``: its outcome
came after all."""

FINAL = frozenset({"kept", "refused", "failed", "cancelled", "expired", "lost"})
"""States in which a fleet waits for the errand no longer."""


def may_follow(state: str, following: str) -> bool:
    return following in STEPS.get(state, frozenset())


DIRECTORY = b"/fleet"
"""Below the vault's directory."""
_FORMAT = 1
_WAIT = 10.0
"""Seconds until another process's transaction has to be over."""
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS about (one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER, origin TEXT) STRICT;
CREATE TABLE IF NOT EXISTS run (
    run TEXT PRIMARY KEY, started INTEGER NOT NULL, command BLOB NOT NULL, workers TEXT NOT NULL, fetch TEXT NOT NULL,
    retry INTEGER NOT NULL, ended INTEGER NOT NULL, git INTEGER NOT NULL, any_arch INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS errand (
    errand TEXT PRIMARY KEY, run TEXT NOT NULL, number INTEGER NOT NULL, label TEXT NOT NULL, message BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS attempt (
    errand TEXT NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, worker TEXT NOT NULL, fork TEXT NOT NULL,
    reason TEXT NOT NULL, changed INTEGER NOT NULL, outcome BLOB NOT NULL, time INTEGER NOT NULL,
    PRIMARY KEY (errand, attempt)
) STRICT;
CREATE TABLE IF NOT EXISTS cancel (errand TEXT PRIMARY KEY) STRICT;
INSERT OR IGNORE INTO about VALUES (1, {_FORMAT}, lower(hex(randomblob(16))));
COMMIT;
"""


class RunRow(NamedTuple):
    run: str
    started: int
    """Nanoseconds since 1970."""
    command: tuple[bytes, ...]
    """For people."""
    workers: tuple[str, ...]
    fetch: str
    """``all``, ``best``, ``best:N`` or ``none``."""
    retry: int = 0
    ended: int = 0
    """0: it is under way, or was cut off."""
    git: bool = False
    """Whether ``.git`` is sent."""
    any_arch: bool = False


class ErrandRow(NamedTuple):
    errand: str
    run: str
    number: int
    label: str
    """Name of its fork here."""
    message: Errand
    """Without attempt and base."""


class AttemptRow(NamedTuple):
    errand: str
    attempt: int
    state: str
    worker: str = ""
    fork: str = ""
    """The fork that it became here."""
    reason: str = ""
    changed: int = 0
    """Changes against this project, as counted here."""
    outcome: ErrandOutcome | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.errand, self.attempt

    @property
    def is_final(self) -> bool:
        return self.state in FINAL


class ErrandLog:
    """Owner: the verb's thread. ``_pending`` holds the rows that ``commit`` writes."""

    def __init__(self, vault: bytes) -> None:
        self.directory = vault + DIRECTORY
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        path = self.directory + b"/errands.db"
        self._lock = Lock(self.directory + b"/lock")
        self._pending: dict[tuple[str, int], AttemptRow] = {}
        self._states: dict[tuple[str, int], str] = {}
        """The states as they are in the log, or will be after ``commit``."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._database = sqlite3.connect(os.fsdecode(path), timeout=_WAIT, isolation_level=None)
            self._database.executescript(_SCHEMA)
            file_format, self.origin = self._database.execute("SELECT format, origin FROM about").fetchone()
        except sqlite3.Error as error:
            raise MudroomError(f"{show(path)} cannot be used: {error}", "forks are not affected by it") from error
        if file_format > _FORMAT:
            self._database.close()
            raise MudroomError(
                f"{show(path)} has format {file_format}, this mudroom knows {_FORMAT}", "upgrade mudroom"
            )

    def close(self) -> None:
        self._database.close()
        self._lock.release()

    def acquire(self, holder: str) -> None:
        """Become the process that acts on this log. Raise UsageError if there is another."""
        others: list[str] = []

        def stop(other: str) -> None:
            others.append(other)
            raise UsageError(
                f"the errands of this project are in the hands of {other or 'another process'}",
                "wait until it has ended, or: mudroom fleet cancel",
            )

        self._lock.acquire(holder, stop)

    def has_owner(self) -> bool:
        """Return whether a process acts on this log."""
        with Descriptor(os.open(self.directory + b"/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as descriptor:
            return not try_lock(descriptor, LOCK_SH)

    def result_directory(self, row: AttemptRow) -> bytes:
        """Return the directory for an attempt's archive and output; it is made."""
        path = self.directory + b"/held/%s-%d" % (row.errand.encode(), row.attempt)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    # --- writing ---

    def begin_run(self, run: RunRow, errands: Iterable[ErrandRow]) -> None:
        """Write a run with its errands, each in state ``new``."""
        now = time.time_ns()
        rows = list(errands)
        with self._transaction():
            self._database.execute(
                "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run.run,
                    run.started,
                    msgspec.msgpack.encode(run.command),
                    " ".join(run.workers),
                    run.fetch,
                    run.retry,
                    run.ended,
                    run.git,
                    run.any_arch,
                ),
            )
            self._database.executemany(
                "INSERT INTO errand VALUES (?, ?, ?, ?, ?)",
                [(row.errand, row.run, row.number, row.label, msgspec.msgpack.encode(row.message)) for row in rows],
            )
            self._database.executemany(
                "INSERT INTO attempt VALUES (?, 1, 'new', '', '', '', 0, x'', ?)", [(row.errand, now) for row in rows]
            )

    def put(self, row: AttemptRow) -> None:
        """Add a row to the next ``commit``. Raise ValueError if its state may not follow that in the log."""
        before = self.state_of(row.key)
        if (
            before != row.state
            and not (before is None and row.state == "new")
            and not may_follow(before or "", row.state)
        ):
            raise ValueError(f"{row.state} cannot follow {before}")
        self._pending[row.key] = row
        self._states[row.key] = row.state

    def commit(self) -> None:
        """Write all rows in one transaction, which the disk has afterwards."""
        if not self._pending:
            return
        now = time.time_ns()
        values = [
            (
                row.errand,
                row.attempt,
                row.state,
                row.worker,
                row.fork,
                row.reason,
                row.changed,
                b"" if row.outcome is None else msgspec.msgpack.encode(row.outcome),
                now,
            )
            for row in self._pending.values()
        ]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO attempt VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        self._pending.clear()

    def end_run(self, run: str) -> None:
        with self._transaction():
            self._database.execute("UPDATE run SET ended = ? WHERE run = ?", (time.time_ns(), run))
        held = self.directory + b"/held"
        for name in os.listdir(held) if os.path.isdir(held) else ():
            if not os.listdir(held + b"/" + name):  # its archive is a fork now, and it has printed nothing
                os.rmdir(held + b"/" + name)

    def redact(self, run: str, redacted: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]) -> None:
        """Remove possible secrets from a run's errands, if it has ended: none is sent again. ``redacted`` returns words
        without secrets."""
        if not any(row.ended for row in self.runs() if row.run == run):
            return
        rows = [
            (msgspec.msgpack.encode(message), row.errand)
            for row in self.errands(run)
            for message in (
                row.message._replace(
                    argv=redacted(row.message.argv), judge=redacted(row.message.judge), variables=(), settings=b""
                ),
            )
        ]
        with self._transaction():
            self._database.executemany("UPDATE errand SET message = ? WHERE errand = ?", rows)

    def prune(self, before: int) -> None:
        """Remove the runs that ended before this time (nanoseconds since 1970) and have nothing left to be fetched."""
        old = (
            "ended > 0 AND ended < ? AND run NOT IN (SELECT run FROM errand JOIN attempt USING (errand) WHERE state IN"
        )
        chosen = f"{old} ('ended', 'late', 'expired'))"
        keys = self._rows(
            "SELECT errand, attempt FROM attempt JOIN errand USING (errand) WHERE run IN"
            f" (SELECT run FROM run WHERE {chosen})",
            before,
        )
        for errand, attempt in keys:
            result_directory = self.directory + b"/held/%s-%d" % (errand.encode(), attempt)
            if os.path.lexists(result_directory):
                remove_tree(result_directory)
        with self._transaction():
            self._database.execute(
                "DELETE FROM attempt WHERE errand IN (SELECT errand FROM errand WHERE run IN"
                f" (SELECT run FROM run WHERE {chosen}))",
                (before,),
            )
            self._database.execute(f"DELETE FROM run WHERE {chosen}", (before,))
            self._database.execute("DELETE FROM errand WHERE run NOT IN (SELECT run FROM run)")

    def request_cancel(self, errands: Iterable[str]) -> None:
        with self._transaction():
            self._database.executemany("INSERT OR IGNORE INTO cancel VALUES (?)", [(errand,) for errand in errands])

    def take_cancel_requests(self) -> set[str]:
        """Return the errands that are to be cancelled, and forget the requests."""
        rows = self._rows("SELECT errand FROM cancel")
        if rows:
            with self._transaction():
                self._database.executemany("DELETE FROM cancel WHERE errand = ?", rows)
        return {str(row[0]) for row in rows}

    # --- reading ---

    def runs(self) -> list[RunRow]:
        """Return the runs, the oldest first."""
        columns = "run, started, command, workers, fetch, retry, ended, git, any_arch"
        return [
            RunRow(row[0], row[1], _decoded(row[2], tuple[bytes, ...]), tuple(row[3].split()), *row[4:7])._replace(
                git=bool(row[7]), any_arch=bool(row[8])
            )
            for row in self._rows(f"SELECT {columns} FROM run ORDER BY started")
        ]

    def errands(self, run: str) -> list[ErrandRow]:
        rows = self._rows("SELECT errand, run, number, label, message FROM errand WHERE run = ? ORDER BY number", run)
        return [ErrandRow._make((*row[:4], _decoded(row[4], Errand))) for row in rows]

    def attempts(self, run: str) -> list[AttemptRow]:
        """Return a run's attempts, those for one errand in order."""
        rows = self._rows(
            "SELECT errand, attempt, state, worker, fork, reason, changed, outcome FROM attempt"
            " JOIN errand USING (errand) WHERE run = ? ORDER BY number, attempt",
            run,
        )
        return [AttemptRow._make((*row[:7], _decoded(row[7], ErrandOutcome) if row[7] else None)) for row in rows]

    def next_run(self) -> str:
        """Return a free name: ``r1``, ``r2`` …"""
        numbers = [int(row.run[1:]) for row in self.runs() if row.run[1:].isdecimal()]
        return f"r{max(numbers, default=0) + 1}"

    def state_of(self, key: tuple[str, int]) -> str | None:
        """Return an attempt's state, as it is or will be after ``commit``; None for an unknown attempt."""
        if key not in self._states:
            rows = self._rows("SELECT state FROM attempt WHERE errand = ? AND attempt = ?", *key)
            if not rows:
                return None
            self._states[key] = str(rows[0][0])
        return self._states[key]

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise MudroomError(f"the errand log cannot be read: {error}", "forks are not affected by it") from error

    def _transaction(self) -> _Transaction:
        return _Transaction(self._database)


def _decoded(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, TypeError) as error:
        raise MudroomError(f"the errand log is damaged: {error}", "forks are not affected by it") from error


class _Transaction:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        try:
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise _write_error(error) from error

    def __exit__(self, kind: object, *_error: object) -> None:
        try:
            self._database.execute("COMMIT" if kind is None else "ROLLBACK")
        except sqlite3.Error as error:
            raise _write_error(error) from error


def _write_error(error: sqlite3.Error) -> MudroomError:
    return MudroomError(
        f"the errand log cannot be written: {error}", "make room on the disk; mudroom fleet resume goes on"
    )
