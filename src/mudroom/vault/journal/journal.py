"""The journal of one vault: an insert-only SQLite table, each row chained to the one before
(``core/journal/event.py``).

    journal.db          the newest events (WAL); table origin: after which event it starts
    journal.head        the last event's number and digest (vault/journal/head.py)
    journal/            archives of older events (vault/journal/archives.py)

Rules of this file. Whatever is appended is redacted here (``core/text/redaction.py``), so that nobody can forget it. An
event is appended in one transaction that looks at the last one, so processes and threads make one chain between them,
and its time is never less than the last one's. If the database ends before the kept head says, that is noted first, as
an event of its own (``gap``).

Older events move to an archive in this order, and mudroom may be killed anywhere in between:

1. The archive is written as ``new``, synced, and renamed. It does not count yet.
2. One transaction moves ``origin`` and deletes the rows. From here on the archive counts. Other processes have the same
   database open all the while; what they append comes before or after that transaction.
3. The database's free pages are given back.
"""

from __future__ import annotations

import os
import sqlite3
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mudroom.core.journal.event import BEGIN, GENESIS, BrokenChain, ChainCheck, ChainHead, Event, chained, examine
from mudroom.core.journal.event_filter import EVERYTHING, EventFilter
from mudroom.core.text.redaction import redact_data, truncate
from mudroom.errors import MudroomError
from mudroom.vault.journal.archives import (
    DamagedArchive,
    JournalArchive,
    archives,
    read_archive,
    read_back,
    set_aside,
    uncounted,
    write_archive,
)
from mudroom.vault.journal.head import KeptHead
from mudroom.vault.lock import Lock

LIMIT = 64 * 10**6
"""Bytes of the database, if the policy says nothing else."""
_VERSION = 2
_PAGE = 1000
"""Rows that are read at a time; the lock is let go in between."""
_PORTION = 64
"""Events that are looked at closely before whoever searches is asked whether to go on."""
_LEAST = 100
"""So many events stay in the database whatever they weigh."""

_LIVE = "number > (SELECT number FROM origin)"
"""Any other row was put there by hand: what was archived is deleted in the transaction that moves the origin."""

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, fork TEXT NOT NULL,
    data TEXT NOT NULL, digest TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS origin (
    one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, digest TEXT NOT NULL
) STRICT;
INSERT OR IGNORE INTO origin VALUES (1, 0, '{GENESIS}');
DROP TRIGGER IF EXISTS event_is_never_removed;
CREATE TRIGGER IF NOT EXISTS event_is_never_changed BEFORE UPDATE ON event
    BEGIN SELECT RAISE(ABORT, 'the journal is insert-only'); END;
CREATE TRIGGER event_is_never_removed BEFORE DELETE ON event WHEN old.number > (SELECT number FROM origin)
    BEGIN SELECT RAISE(ABORT, 'the journal is insert-only'); END;
CREATE TRIGGER IF NOT EXISTS origin_only_moves_on BEFORE UPDATE ON origin WHEN new.number <= old.number
    BEGIN SELECT RAISE(ABORT, 'the journal is insert-only'); END;
CREATE TRIGGER IF NOT EXISTS origin_is_never_removed BEFORE DELETE ON origin
    BEGIN SELECT RAISE(ABORT, 'the journal is insert-only'); END;
"""

Entry = tuple[str, str, Mapping[str, Any]]
"""Kind, fork, data."""


class EventPage(NamedTuple):
    """What came of looking at one part of a journal."""

    events: tuple[Event, ...]
    """Those that are wanted, newest first."""
    down_to: int
    """All others that are not older than this one are not."""


class Journal:
    """Safe to use from several threads, one at a time, and from any number of processes."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._directory = path.removesuffix(b".db")
        self._head = KeptHead(self._directory + b".head")
        self._lock = allocate_lock()
        self._database: sqlite3.Connection | None = None
        self._known: set[str] = set()

    def conceal(self, values: Iterable[str]) -> None:
        """Secrets whose values are known: they are hidden in what is appended from here on, wherever they stand."""
        self._known.update(values)

    # --- writing ---

    def append(self, kind: str, fork: str, data: Mapping[str, Any], *, time: int) -> int:
        """Add one event; returns its number. ``data`` is anything JSON can say. ``time``: now, nanoseconds since 1970.

        Raises MudroomError if it cannot be written; nothing is then."""
        return self.append_all([(kind, fork, data)], time=time)

    def append_all(self, entries: Sequence[Entry], *, time: int) -> int:
        """Add several events, all or none; returns the number of the last one."""
        clean = [(kind, fork, redact_data(truncate(dict(data)), self._known)) for kind, fork, data in entries]
        with self._lock, self._named_errors():
            database = self._open()
            database.execute("BEGIN IMMEDIATE")
            try:
                head = self._insert(database, clean, time)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:  # a full disk may have ended it already
                    database.execute("ROLLBACK")
                raise
            try:
                self._head.write(head)
            except OSError:
                pass  # it lags behind then, until the next append: the chain is whole, and the event is in it
        return head.number

    def _insert(
        self, database: sqlite3.Connection, entries: list[tuple[str, str, dict[str, Any]]], time: int
    ) -> ChainHead:
        last = _last(database)
        head = ChainHead(last.number, last.digest) if last is not None else _origin(database)
        kept = self._head.read()
        if kept is None or kept.number > head.number:
            entries = [("gap", "", {"last": kept.number if kept is not None else None}), *entries]
        for kind, fork, data in entries:
            last = chained(last, head, time, kind, fork, data)
            database.execute("INSERT INTO event VALUES (?,?,?,?,?,?)", last)
            head = ChainHead(last.number, last.digest)
        return head

    # --- reading ---

    def events(self, *, last: int | None = None, where: EventFilter = EVERYTHING) -> Iterator[Event]:
        """The events that are wanted, oldest first, or the ``last`` so many of them; archives are read as far as they
        are needed."""
        if last is not None:
            yield from reversed([event for event, _wanted in zip(self.newest(where), range(last), strict=False)])
            return
        yield from self.events_since(self._first(where) - 1, where)

    def events_since(self, number: int, where: EventFilter = EVERYTHING) -> Iterator[Event]:
        """Those that are newer than that number, oldest first."""
        for event in self._forwards(number, where):
            if where.matches(event):
                yield event

    def events_after(self, number: int, kind: str) -> list[Event]:
        """The events of one kind that are newer than that number, oldest first."""
        return list(self.events_since(number, EventFilter((kind,))))

    def head(self) -> ChainHead:
        """The number and digest of the newest event."""
        with self._lock, self._named_errors():
            database = self._open()
            last = _last(database)
            return ChainHead(last.number, last.digest) if last is not None else _origin(database)

    def _forwards(self, number: int, where: EventFilter = EVERYTHING) -> Iterator[Event]:
        condition, values = _condition(where)
        query = f"SELECT * FROM event WHERE number > ? {condition} ORDER BY number LIMIT {_PAGE}"
        while True:
            origin, page = self._page(query, (number, *values))
            if number < origin.number:  # what is asked for has been archived, just now perhaps
                for archive in archives(self._directory, origin.number):
                    if archive.last > number:
                        yield from (event for event in read_archive(archive) if event.number > number)
                number = origin.number
                continue
            yield from page
            if len(page) < _PAGE:
                return
            number = page[-1].number

    def newest(
        self, where: EventFilter = EVERYTHING, before: int = 1 << 62, *, archived: bool = True
    ) -> Iterator[Event]:
        """Those before that number, newest first, until there is none, or none that can be wanted: times never go back
        along the chain. ``archived``: those in archives, too, of which there may be any number."""
        for looked in self.looked(where, before, archived=archived):
            yield from looked.events

    def looked(
        self, where: EventFilter = EVERYTHING, before: int = 1 << 62, *, archived: bool = True
    ) -> Iterator[EventPage]:
        """The same, some at a time, with how far that was: whoever looks for what is rare may have enough of it."""
        for page in self._backwards(where, before, archived=archived):
            for at in range(0, len(page), _PORTION):
                portion = page[at : at + _PORTION]
                kept = _recent(portion, where)
                yield EventPage(tuple(filter(where.matches, kept)), portion[-1].number)
                if len(kept) < len(portion):
                    return

    def _backwards(self, where: EventFilter, before: int, *, archived: bool) -> Iterator[list[Event]]:
        """Pages of them; what SQLite can tell is not wanted may be missing."""
        condition, values = _condition(where)
        query = f"SELECT * FROM event WHERE number < ? AND {_LIVE} {condition} ORDER BY number DESC LIMIT {_PAGE}"
        number = before
        while True:
            origin, page = self._page(query, (number, *values))
            yield page
            if len(page) < _PAGE:
                break
            number = page[-1].number
        for archive in reversed(archives(self._directory, origin.number)) if archived else ():
            yield from read_back(archive, number)

    def _page(self, query: str, values: tuple[Any, ...]) -> tuple[ChainHead, list[Event]]:
        """Rows, and after which event the database starts, at one and the same moment."""
        with self._lock, self._named_errors():
            database = self._open()
            database.execute("BEGIN")
            try:
                return _origin(database), [Event(*row) for row in database.execute(query, values)]
            finally:
                database.execute("COMMIT")

    def _first(self, where: EventFilter) -> int:
        """The number of an event before which none is wanted."""
        if where.since is None:
            return 1
        query = f"SELECT * FROM event WHERE time >= ? AND {_LIVE} ORDER BY number LIMIT 1"
        origin, found = self._page(query, (where.since,))
        if not found:
            return self.head().number + 1
        return found[0].number if found[0].number > origin.number + 1 else 1

    # --- whether it is as it was written ---

    def verify(self) -> int | None:
        """The number of the first event that was tampered with, or that follows a gap; None if all is well."""
        broken = self.examine().broken
        return None if broken is None else broken.number

    def examine(self, progress: Callable[[int, int], None] | None = None) -> ChainCheck:
        """Follow the whole chain, through all archives, and compare its end with the head that was kept."""
        total = self.head().number
        kept = self._head.read()  # before the events are read: it is never ahead of them

        def watched() -> Iterator[Event]:
            for event in self._forwards(0):
                if progress is not None and event.number % _PAGE == 0:
                    progress(event.number, total)
                yield event

        try:
            found = examine(watched(), kept=kept)
        except DamagedArchive as error:
            return ChainCheck(ChainHead(error.number - 1), BrokenChain(error.number, "archive", error.message))
        if kept is None and found.broken is None and total:
            text = "journal.head is missing or damaged: whether the end of the journal was cut off cannot be told"
            return found._replace(broken=BrokenChain(found.head.number + 1, "head", text))
        return found if found.broken is not None else found._replace(broken=self._stray())

    def _stray(self) -> BrokenChain | None:
        """A row where no event can be: before the first of the database."""
        origin, found = self._page(f"SELECT * FROM event WHERE NOT {_LIVE} ORDER BY number DESC LIMIT 1", ())
        if not found:
            return None
        number = found[0].number
        where = f"up to {origin.number} they are in archives" if number > 0 else "the first one is 1"
        return BrokenChain(number, "appended", f"event {number} was not written by mudroom: {where}")

    # --- archives ---

    def keep_within(self, size: int, age: float, now: int) -> JournalArchive | None:
        """Move older events to an archive if the database has more than ``size`` bytes, or has events that are older
        than ``age`` (seconds). Costs a few looks at single rows and pages if neither is so.

        Raises OSError or MudroomError as the disk does; no event is lost then."""
        with self._lock, self._named_errors():
            upto = _surplus(self._open(), size, now - int(age * 10**9), now - int(age * 10**9) // 2)
        return self.archive(upto) if upto else None

    def archive(self, upto: int) -> JournalArchive | None:
        """Move all events up to that number to an archive. None if there is nothing to move, or somebody else is at it.
        The newest event never moves."""
        os.makedirs(self._directory, 0o700, exist_ok=True)
        lock = Lock(self._directory + b"/lock", "archiving")
        if not lock.acquire_now():
            return None
        try:
            origin, newest = self._page("SELECT * FROM event ORDER BY number DESC LIMIT 1", ())
            upto = min(upto, newest[0].number - 1) if newest else 0
            if upto <= origin.number:
                return None
            set_aside(self._directory, origin.number, self._digests(uncounted(self._directory, origin.number)))
            archive = write_archive(self._directory, self._up_to(upto, origin.number), origin)
            self._start_after(ChainHead(archive.last, self._digests([archive.last])[archive.last]))
            return archive
        finally:
            lock.release()

    def _up_to(self, upto: int, number: int) -> Iterator[Event]:
        for event in self._forwards(number):
            if event.number > upto:
                return
            yield event

    def _digests(self, numbers: Iterable[int]) -> dict[int, str]:
        found = {}
        for number in numbers:
            for event in self._page("SELECT * FROM event WHERE number = ?", (number,))[1]:
                found[number] = event.digest
        return found

    def _start_after(self, head: ChainHead) -> None:
        with self._lock, self._named_errors():
            database = self._open()
            database.execute("BEGIN IMMEDIATE")
            try:
                database.execute("UPDATE origin SET number = ?, digest = ?", head)
                database.execute("DELETE FROM event WHERE number <= ?", (head.number,))
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            # As a script: execute() takes one step of it, which gives back one page.
            database.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")

    # --- the database ---

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            # Autocommit; a writer waits up to 30 s for another one.
            database = sqlite3.connect(
                os.fsdecode(self._path), timeout=30, isolation_level=None, check_same_thread=False
            )
            database.text_factory = _text
            try:
                if _version(database) < _VERSION:
                    with Lock(self._directory + b".lock", "making the journal"):
                        self._make(database)
                # In WAL mode NORMAL loses at most the last events in a power cut, never the chain:
                # sqlite.org/pragma.html
                database.execute("PRAGMA synchronous=NORMAL")
            except BaseException:
                database.close()
                raise
            self._database = database
        return self._database

    def _make(self, database: sqlite3.Connection) -> None:
        """The tables, or what an older mudroom's lack. The head is there before they are."""
        if _version(database) >= _VERSION:
            return  # another process was faster
        database.execute("PRAGMA auto_vacuum=INCREMENTAL")
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(_SCHEMA)
        try:
            if self._head.read() is None:
                last = _last(database)
                self._head.write(ChainHead(last.number, last.digest) if last is not None else BEGIN)
            database.execute(f"PRAGMA user_version={_VERSION}")
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        self._head.close()

    def _named_errors(self) -> _NamedErrors:
        return _NamedErrors(self._path)


def _text(raw: bytes) -> str:
    """What was edited by hand is read whatever it is: whether it is as it was written is another question."""
    return raw.decode("utf-8", "surrogateescape")


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _last(database: sqlite3.Connection) -> Event | None:
    row = database.execute("SELECT * FROM event ORDER BY number DESC LIMIT 1").fetchone()
    return Event(*row) if row is not None else None


def _origin(database: sqlite3.Connection) -> ChainHead:
    row = database.execute("SELECT number, digest FROM origin").fetchone()
    return ChainHead(*row) if row is not None else BEGIN


def _recent(page: list[Event], where: EventFilter) -> list[Event]:
    """A page that has the newest first, as far as its events can be wanted."""
    if where.since is None or not page or page[-1].time >= where.since:
        return page
    return [event for event in page if event.time >= where.since]


def _condition(where: EventFilter) -> tuple[str, tuple[str, ...]]:
    """What SQLite can look at."""
    condition = "".join(
        f" AND {column} IN ({','.join('?' * len(wanted))})"
        for column, wanted in (("kind", where.kinds), ("fork", where.forks))
        if wanted
    )
    return condition, (*where.kinds, *where.forks)


def _surplus(database: sqlite3.Connection, size: int, oldest: int, half: int) -> int:
    """Up to which number events go to an archive; 0: none has to."""
    first = database.execute(f"SELECT number, time FROM event WHERE {_LIVE} ORDER BY number LIMIT 1").fetchone()
    last = _last(database)
    if first is None or last is None:
        return 0
    if _used(database) > size:
        return max(0, last.number - max(_LEAST, (last.number - int(first[0])) // 4))
    if first[1] < oldest:
        row = database.execute("SELECT max(number) FROM event WHERE time < ?", (half,)).fetchone()
        return max(0, min(int(row[0] or 0), last.number - 1))
    return 0


def _used(database: sqlite3.Connection) -> int:
    pages, free, size = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


class _NamedErrors:
    """Turns a database error into one that names the file. (contextlib costs import time on the fast path.)"""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise MudroomError(
                f"the journal {os.fsdecode(self._path)} cannot be used: {error}", _ADVICE.get(code, _DAMAGED)
            ) from error


_ADVICE = {
    sqlite3.SQLITE_FULL: "make room on that file system",
    sqlite3.SQLITE_IOERR: "make room on that file system",
    sqlite3.SQLITE_BUSY: "another mudroom has held it for half a minute: one that is stopped (Ctrl-Z)?",
    sqlite3.SQLITE_READONLY: "it has to be writable",
    sqlite3.SQLITE_CANTOPEN: "it has to be writable",
}
_DAMAGED = "if it is damaged, move it aside; forks and applies do not depend on it"
