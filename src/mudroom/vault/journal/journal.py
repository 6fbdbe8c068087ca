"""A vault's journal: an insert-only SQLite table, each row chained to the one before (``core/journal/event.py``).

    journal.db          the newest events (WAL); table origin: after which event it starts
    journal.db-wal      the last ones, even while no process has it open (``leave``)
    journal.head        the last event's number and digest (vault/journal/head.py)
    journal/            archives of older events

Every appended event is redacted here (``core/text/redaction.py``), so that no caller can forget it. An event is
appended in one transaction that also reads the last event: so all processes and threads write one chain, and times
never decrease along it. If the database ends before the kept head, an event ``gap`` is appended first to record that.

Older events move to an archive in this order, and mudroom may be killed at any point:

1. The archive is written as ``new``, synced, and renamed. It is not valid yet.
2. One transaction moves ``origin`` and deletes the rows. From here on the archive is valid. Other processes have the
   same database open meanwhile; their appends come before or after that transaction.
3. The database's free pages are given back.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from mudroom.core.clock import SECOND, VaultClock, horizon
from mudroom.core.journal.event import BEGIN, GENESIS, BrokenChain, ChainCheck, ChainHead, Event, chained, examine
from mudroom.core.journal.event_filter import EVERYTHING, EventFilter
from mudroom.core.text.json_text import to_json_text
from mudroom.core.text.redaction import redact_data, truncate
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import FULL, READ_AGAIN, MudroomError
from mudroom.stage import disk
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple
from mudroom.vault.lock import Lock
from mudroom.vault.sync import sync_directory

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import _sqlite3 as sqlite3  # sqlite3 itself imports datetime, for column types that are not used here
    except ImportError:
        import sqlite3


# --- the last event's number and digest, kept beside the database to detect a truncated journal ---
#
# The file has two lines with fixed length, ``TURN NUMBER DIGEST TURN``; the line with the greater turn counts. After
# each commit the other line is overwritten, without fsync. A torn line is recognised by its two different turns, and
# the earlier line still counts.
#
# If mudroom is killed or the disk is full between the two writes, the head lags behind the database; it is never ahead.
# Only a power loss can remove the database's last events without the head.


_LENGTH = 20 + 1 + 20 + 1 + 64 + 1 + 20 + 1
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_Line = tuple[int, ChainHead]
"""A line's turn and head."""


class KeptHead:
    """The file ``journal.head``. Owner: a ``Journal``, which is used by one thread at a time."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._descriptor = -1

    def read(self) -> ChainHead | None:
        """Return the kept head, or None if it is missing or damaged."""
        if self._descriptor < 0:
            try:
                self._descriptor = disk.open_path(self._path, os.O_RDWR | disk.O_CLOEXEC | disk.O_NOFOLLOW)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
                return self._read_only()
        return _newest(self._both())

    def _read_only(self) -> ChainHead | None:
        """Return a read-only journal's kept head, such as a backup. The file is not kept open."""
        descriptor = disk.open_path(self._path, os.O_RDONLY | disk.O_CLOEXEC | disk.O_NOFOLLOW)
        try:
            return _newest(_head_lines(disk.pread(descriptor, 2 * _LENGTH, 0)))
        finally:
            os.close(descriptor)

    def write(self, head: ChainHead) -> None:
        """Write the head. Raise OSError on a disk error."""
        if self._descriptor < 0:
            self._descriptor = disk.open_path(
                self._path, os.O_RDWR | os.O_CREAT | disk.O_CLOEXEC | disk.O_NOFOLLOW, 0o600
            )
        first, second = self._both()
        at = _LENGTH if first is not None and (second is None or second < first) else 0
        turn = max(line[0] if line is not None else 0 for line in (first, second)) + 1
        line = b"%020d %020d %s %020d\n" % (turn, head.number, head.digest.encode("ascii"), turn)
        while line:
            done = disk.pwrite(self._descriptor, line, at)
            line, at = line[done:], at + done

    def _both(self) -> tuple[_Line | None, _Line | None]:
        try:
            return _head_lines(disk.pread(self._descriptor, 2 * _LENGTH, 0))
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _head_lines(raw: bytes) -> tuple[_Line | None, _Line | None]:
    return _read(raw[:_LENGTH]), _read(raw[_LENGTH:])


def _newest(lines: tuple[_Line | None, _Line | None]) -> ChainHead | None:
    return max((line for line in lines if line is not None), default=(0, None))[1]


def _read(raw: bytes) -> _Line | None:
    words = raw.split(b" ")
    if len(raw) != _LENGTH or [len(word) for word in words] != [20, 20, 64, 21] or words[0] + b"\n" != words[3]:
        return None
    if not (words[0].isdigit() and words[1].isdigit()):
        return None
    return int(words[0]), ChainHead(int(words[1]), words[2].decode("ascii", "replace"))


# --- archives: older events that were moved out of the database ---
#
#     journal/<first>-<last>.jsonl.gz     by their event numbers, nine digits or more
#     journal/new                         an archive that is being written
#     journal/lock                        flock(2): the writer
#
# The first line is ``{"format": 1, "previous": DIGEST}``. Each further line is one event, as a list. An archive is
# valid only when the database says that it starts after the archive's last event (table ``origin``).


_FORMAT = 1
_NAME = regex(rb"(\d{9,19})-(\d{9,19})\.jsonl\.gz")
_LEVEL = 6
WINDOW = 16 << 20
"""Bytes in lines held in memory when an archive is read from its end."""
_AT_ONCE = 1000
"""Events parsed at a time; parsed events take more memory than lines."""
_DAMAGE = (EOFError, OSError, ValueError, RecursionError)
"""Exceptions raised while reading a damaged archive."""
_TYPES = (int, int, str, str, str, str)


class JournalArchive(NamedTuple):
    first: int
    last: int
    path: bytes


class DamagedArchive(MudroomError):
    """A damaged archive. ``number``: the first event that cannot be read."""

    def __init__(self, path: bytes, number: int, why: str) -> None:
        super().__init__(f"the archive {show(path)} of the journal is damaged: {why}")
        self.number = number


def archives(directory: bytes, upto: int) -> list[JournalArchive]:
    """Return the archives with events up to that number, oldest first."""
    return [archive for archive in _list(directory) if archive.last <= upto]


def _list(directory: bytes) -> list[JournalArchive]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    return sorted(JournalArchive(int(match[1]), int(match[2]), directory + b"/" + match[0]) for match in matches)


def read_archive(archive: JournalArchive) -> Iterator[Event]:
    """Yield the archive's events. Raise DamagedArchive if they are malformed or end too early."""
    number = archive.first
    try:
        for line in _lines(archive):
            event = _event(line)
            number = event.number + 1
            yield event
    except _DAMAGE as error:
        raise DamagedArchive(archive.path, number, str(error)) from error
    if number != archive.last + 1:
        raise DamagedArchive(archive.path, number, f"it ends before event {archive.last}")


def read_back(archive: JournalArchive, before: int) -> Iterator[list[Event]]:
    """Yield lists of the archive's events before that number, newest first.

    gzip can only be unpacked from the beginning, which is done once for each ``WINDOW``: the whole archive may be
    large, and usually only its end is needed. Raise DamagedArchive as ``read_archive`` does, for the part that is read.
    """
    before = min(before, archive.last + 1)
    while before > archive.first:
        number = archive.first
        window, held = deque[bytes](), 0
        try:
            for line in _lines(archive):
                number = int(line[1 : line.index(b",")])
                if number >= before:
                    break
                window.append(line)
                held += len(line)
                while held > WINDOW and len(window) > 1:
                    held -= len(window.popleft())
            else:
                if number < before - 1:
                    raise ValueError(f"it ends before event {archive.last}")
            if not window:
                raise ValueError("its events are not in order")
            while window:
                events = [_event(window.pop()) for _ in range(min(_AT_ONCE, len(window)))]
                before = number = events[-1].number
                yield events
        except _DAMAGE as error:
            raise DamagedArchive(archive.path, number, str(error)) from error


def _lines(archive: JournalArchive) -> Iterator[bytes]:
    """Yield the event lines. Raise DamagedArchive, or an exception from ``_DAMAGE``."""
    import gzip  # imported here: few callers write or read archives
    import zlib

    try:
        with gzip.open(archive.path, "rb") as stream:
            import json

            header = json.loads(stream.readline())
            if not isinstance(header, dict) or header.get("format") != _FORMAT:
                raise DamagedArchive(archive.path, archive.first, f"its format is not {_FORMAT}")
            yield from stream
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _event(line: bytes) -> Event:
    import json

    row = json.loads(line.decode("ascii"))
    if not isinstance(row, list) or tuple(map(type, row)) != _TYPES:
        raise ValueError("a line is not an event")
    return Event(*row)


def write_archive(directory: bytes, events: Iterable[Event], previous: ChainHead) -> JournalArchive:
    """Write a new archive, durably. ``events`` must not be empty. Hold ``journal/lock``.

    Raise OSError on a disk error; then no archive was made.
    """
    import gzip

    new = directory + b"/new"
    last = previous.number
    descriptor = disk.open_path(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | disk.O_CLOEXEC | disk.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as stream:
            stream.write(_line({"format": _FORMAT, "previous": previous.digest}))
            for event in events:
                stream.write(_line(list(event)))
                last = event.number
        file.flush()
        os.fsync(file.fileno())
    archive = JournalArchive(
        previous.number + 1, last, directory + b"/%09d-%09d.jsonl.gz" % (previous.number + 1, last)
    )
    disk.rename_path(new, archive.path)
    sync_directory(directory)
    return archive


def remove_invalid(directory: bytes, after: int, digest_at: dict[int, str]) -> None:
    """Before the events after ``after`` are archived, remove archives that already hold such events.

    An archive that was completed just before mudroom was killed ends with the same digest as the database; it is
    deleted. Any other archive is renamed so that it is no longer read. Hold ``journal/lock``.
    """
    for archive in _list(directory):
        if archive.last <= after:
            continue
        if _last_digest(archive) == digest_at.get(archive.last):
            os.unlink(archive.path)
        else:
            disk.rename_path(archive.path, _free(archive.path + b".other"))


def invalid_ends(directory: bytes, after: int) -> list[int]:
    """Return the last event numbers in archives that are not (yet) valid."""
    return [archive.last for archive in _list(directory) if archive.last > after]


def _last_digest(archive: JournalArchive) -> str | None:
    digest = None
    try:
        for event in read_archive(archive):
            digest = event.digest
    except DamagedArchive:
        return None
    return digest


def _free(path: bytes) -> bytes:
    number = 0
    while os.path.lexists(path + b"%d" % number):
        number += 1
    return path + b"%d" % number


def _line(value: object) -> bytes:
    return to_json_text(value, ",", ":").encode("ascii") + b"\n"


# --- the journal ---

LIMIT = 64 * 10**6
"""Default size limit for the database, in bytes."""
_VERSION = 2
_PAGE = 1000
"""Rows read at a time; the lock is released in between."""
_PORTION = 64
"""Events filtered before the searching caller is asked whether to continue."""
_LOG = 128 * 1024
"""Bytes in a write-ahead log that may be left to the next process. That process reads them again, at 3 µs per 4 KiB."""
_LEFT: list[sqlite3.Connection] = []
"""The database that stays open until this process ends; at most one, however many a process opens."""
_LEAST = 100
"""Number of events that stay in the database, whatever their size."""

_FOREVER = 100 * 366 * 86400.0
"""Seconds. An infinite age cannot be converted to nanoseconds."""

_LIVE = "number > (SELECT number FROM origin)"
"""Any other row was inserted by hand: archived rows are deleted in the transaction that moves the origin."""

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
    """Search result for one part of a journal."""

    events: tuple[Event, ...]
    """Matching events, newest first."""
    down_to: int
    """The oldest examined event's number."""


class Journal:
    """A vault's journal. Threads may share it: a lock admits one at a time. Any number of processes may use the
    file."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._directory = path.removesuffix(b".db")
        self._head = KeptHead(self._directory + b".head")
        self._lock = allocate_lock()
        self._database: sqlite3.Connection | None = None
        self._secrets: set[str] = set()

    def conceal(self, values: Iterable[str]) -> None:
        """Redact these secret values wherever they occur in events appended from now on."""
        self._secrets.update(values)

    # --- writing ---

    def append(self, kind: str, fork: str, data: Mapping[str, Any], *, time: int) -> int:
        """Append one event and return its number. ``data``: any JSON value. ``time``: now, in nanoseconds since 1970.

        Raise MudroomError if it cannot be written; then no event was appended.
        """
        return self.append_all([(kind, fork, data)], time=time)

    def append_all(self, entries: Sequence[Entry], *, time: int) -> int:
        """Append several events, all or none. Return the last event's number."""
        clean = [(kind, fork, redact_data(truncate(dict(data)), self._secrets)) for kind, fork, data in entries]
        with self._lock, self._named_errors():
            database = self._open()
            database.execute("BEGIN IMMEDIATE")
            try:
                head = self._insert(database, clean, time)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:  # a full disk may already have ended the transaction
                    database.execute("ROLLBACK")
                raise
            try:
                self._head.write(head)
            except OSError:
                pass  # the head lags until the next append; the chain is whole and holds the event
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
        """Yield the matching events, oldest first, or only the ``last`` newest. Archives are read as far as needed."""
        if last is not None:
            yield from reversed([event for event, _wanted in zip(self.newest(where), range(last), strict=False)])
            return
        yield from self.events_since(self._first(where) - 1, where)

    def events_since(self, number: int, where: EventFilter = EVERYTHING) -> Iterator[Event]:
        """Yield the matching events after that number, oldest first."""
        for event in self._forwards(number, where):
            if where.matches(event):
                yield event

    def events_after(self, number: int, kind: str) -> list[Event]:
        """Return the events of one kind after that number, oldest first."""
        return list(self.events_since(number, EventFilter((kind,))))

    def head(self) -> ChainHead:
        """Return the newest event's number and digest."""
        with self._lock, self._named_errors():
            database = self._readable()
            last = _last(database)
            return ChainHead(last.number, last.digest) if last is not None else _origin(database)

    def _forwards(self, number: int, where: EventFilter = EVERYTHING) -> Iterator[Event]:
        condition, values = _condition(where)
        query = f"SELECT * FROM event WHERE number > ? {condition} ORDER BY number LIMIT {_PAGE}"
        while True:
            origin, page = self._page(query, (number, *values))
            if number < origin.number:  # the events were archived, perhaps just now
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
        """Yield the matching events before that number, newest first.

        Stop when no earlier event can match: times never decrease along the chain. ``archived``: also search archives,
        however many there are.
        """
        for portion in self.search(where, before, archived=archived):
            yield from portion.events

    def search(
        self, where: EventFilter = EVERYTHING, before: int = 1 << 62, *, archived: bool = True
    ) -> Iterator[EventPage]:
        """Yield the same events as ``newest``, in portions that say how far the search has come, so that a caller can
        stop a long search."""
        for page in self._backwards(where, before, archived=archived):
            for at in range(0, len(page), _PORTION):
                portion = page[at : at + _PORTION]
                kept = _recent_part(portion, where)
                yield EventPage(tuple(filter(where.matches, kept)), portion[-1].number)
                if len(kept) < len(portion):
                    return

    def _backwards(self, where: EventFilter, before: int, *, archived: bool) -> Iterator[list[Event]]:
        """Yield pages of events, newest first. Events that SQLite can filter out may be missing."""
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
        """Return rows and the database's origin, read in one transaction."""
        with self._lock, self._named_errors():
            database = self._readable()
            database.execute("BEGIN")
            try:
                return _origin(database), [Event(*row) for row in database.execute(query, values)]
            finally:
                database.execute("COMMIT")

    def _first(self, where: EventFilter) -> int:
        """Return an event number such that no earlier event matches."""
        if where.since is None:
            return 1
        query = f"SELECT * FROM event WHERE time >= ? AND {_LIVE} ORDER BY number LIMIT 1"
        origin, events = self._page(query, (where.since,))
        if not events:
            return self.head().number + 1
        return events[0].number if events[0].number > origin.number + 1 else 1

    # --- verification ---

    def verify(self) -> int | None:
        """Return the number of the first event that was tampered with or that follows a gap; None if the journal is
        intact."""
        broken = self.examine().broken
        return None if broken is None else broken.number

    def examine(self, progress: Callable[[int, int], None] | None = None) -> ChainCheck:
        """Verify the whole chain, through all archives, and compare its end with the kept head."""
        total = self.head().number
        kept = self._head.read()  # read before the events: the head is never ahead of them

        def watched() -> Iterator[Event]:
            for event in self._forwards(0):
                if progress is not None and event.number % _PAGE == 0:
                    progress(event.number, total)
                yield event

        try:
            result = examine(watched(), kept=kept)
        except DamagedArchive as error:
            return ChainCheck(ChainHead(error.number - 1), BrokenChain(error.number, "archive", error.message))
        if kept is None and result.broken is None and total:
            text = "journal.head is missing or damaged: the end of the journal may have been cut off"
            return result._replace(broken=BrokenChain(result.head.number + 1, "head", text))
        return result if result.broken is not None else result._replace(broken=self._stray())

    def _stray(self) -> BrokenChain | None:
        """Return a row that no append can have written: its number is not after the origin."""
        origin, rows = self._page(f"SELECT * FROM event WHERE NOT {_LIVE} ORDER BY number DESC LIMIT 1", ())
        if not rows:
            return None
        number = rows[0].number
        where = f"up to {origin.number} they are in archives" if number > 0 else "the first one is 1"
        return BrokenChain(number, "appended", f"event {number} was not written by mudroom: {where}")

    # --- archives ---

    def keep_within(self, size: int, age: float, clock: VaultClock) -> JournalArchive | None:
        """Move older events to an archive if the database is larger than ``size`` bytes, or has events older than
        ``age`` seconds by the vault's own clock. Otherwise this costs a few row and page lookups.

        Raise OSError or MudroomError on a disk error; then no event is lost.
        """
        with self._lock, self._named_errors():
            nanoseconds = int(min(age, _FOREVER) * SECOND)
            upto = _surplus(self._open(), size, horizon(clock, nanoseconds), horizon(clock, nanoseconds // 2))
        return self.archive(upto) if upto else None

    def archive(self, upto: int) -> JournalArchive | None:
        """Move all events up to that number to an archive. The newest event never moves.

        Return None if there is nothing to move, or another process is archiving.
        """
        os.makedirs(self._directory, 0o700, exist_ok=True)
        lock = Lock(self._directory + b"/lock", "archiving")
        if not lock.acquire_now():
            return None
        try:
            origin, newest = self._page("SELECT * FROM event ORDER BY number DESC LIMIT 1", ())
            upto = min(upto, newest[0].number - 1) if newest else 0
            if upto <= origin.number:
                return None
            remove_invalid(self._directory, origin.number, self._digests(invalid_ends(self._directory, origin.number)))
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
        digests = {}
        for number in numbers:
            for event in self._page("SELECT * FROM event WHERE number = ?", (number,))[1]:
                digests[number] = event.digest
        return digests

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
            # As a script: execute() performs only one step, which gives back one page.
            database.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")

    # --- the database ---

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            # Autocommit; a writer waits up to 30 s for another writer.
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

    def _readable(self) -> sqlite3.Connection:
        """Return the database, or a copy in memory on a full disk: SQLite cannot open a WAL database there, because it
        makes two files beside it."""
        try:
            return self._open()
        except sqlite3.OperationalError:
            from mudroom.vault.journal.memory_copy import copy_in_memory

            copy = copy_in_memory(self._path)
            if copy is None or _version(copy) < _VERSION:
                raise
            copy.isolation_level, copy.text_factory = None, _text
            return copy

    def _make(self, database: sqlite3.Connection) -> None:
        """Create the tables, or add those missing from an older version. The head is written before the version."""
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

    def leave(self) -> None:
        """Call this instead of ``close`` in a process that is about to end by _exit(2).

        Closing a database moves its log into its file, with two fdatasync(2), and removes the log; the next process
        then has to begin a new log and sync its head and directory. Therefore a short log is left in place, as if the
        process had been killed: the next process continues it, and a power cut can lose no more than before
        (sqlite.org/wal.html).
        """
        database, self._database = self._database, None
        if database is not None:
            if _LEFT or _size(self._path + b"-wal") > _LOG:
                database.close()
            else:
                _LEFT.append(database)
        self._head.close()

    def _named_errors(self) -> _NamedErrors:
        return _NamedErrors(self._path)


def _size(path: bytes) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # no log was written


def _text(raw: bytes) -> str:
    """Decode any bytes, so that rows edited by hand can be read and ``verify`` can report them."""
    return raw.decode("utf-8", "surrogateescape")


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _last(database: sqlite3.Connection) -> Event | None:
    row = database.execute("SELECT * FROM event ORDER BY number DESC LIMIT 1").fetchone()
    return Event(*row) if row is not None else None


def _origin(database: sqlite3.Connection) -> ChainHead:
    row = database.execute("SELECT number, digest FROM origin").fetchone()
    return ChainHead(*row) if row is not None else BEGIN


def _recent_part(page: list[Event], where: EventFilter) -> list[Event]:
    """Return the part of a page (newest first) that may match."""
    if where.since is None or not page or page[-1].time >= where.since:
        return page
    return [event for event in page if event.time >= where.since]


def _condition(where: EventFilter) -> tuple[str, tuple[str, ...]]:
    """Return the part of the filter that SQLite can apply."""
    condition = "".join(
        f" AND {column} IN ({','.join('?' * len(wanted))})"
        for column, wanted in (("kind", where.kinds), ("fork", where.forks))
        if wanted
    )
    return condition, (*where.kinds, *where.forks)


def _surplus(database: sqlite3.Connection, size: int, oldest: int, half: int) -> int:
    """Return the number up to which events must be archived; 0 if none."""
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
    """Convert a database error into an error that names the file. (contextlib costs import time on the fast path.)"""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            cannot = f"the journal {os.fsdecode(self._path)} cannot be used"
            if code == sqlite3.SQLITE_CANTOPEN and (why := _cannot_write_beside(self._path)) is not None:
                hint = _ADVICE[sqlite3.SQLITE_FULL if why.errno in FULL else code]
                raise MudroomError(f"{cannot}: {why.strerror}", hint) from error
            if code == sqlite3.SQLITE_CORRUPT and _is_readable(self._path):
                raise MudroomError(f"{cannot}: a read of the disk has failed", _PASSED) from error
            if getattr(error, "sqlite_errorcode", 0) in _READS:
                raise MudroomError(f"{cannot}: {error}", _PASSED) from error
            raise MudroomError(f"{cannot}: {error}", _ADVICE.get(code, _DAMAGED)) from error


def _is_readable(path: bytes) -> bool:
    """Return whether the database is whole when it is read again. SQLite takes a failed read(2) for damage."""
    from urllib.parse import quote

    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as database:
            return bool(database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def _cannot_write_beside(path: bytes) -> OSError | None:
    """Return the error that prevents making a file beside the journal, or None. SQLite keeps its log there, and does
    not give the reason."""
    trial = path + b"-trial-" + os.urandom(4).hex().encode()
    try:
        os.close(disk.open_path(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600))
        os.unlink(trial)
    except OSError as error:
        return error
    return None


MAKE_ROOM = "make room on that file system"
_ADVICE = {
    sqlite3.SQLITE_FULL: MAKE_ROOM,
    sqlite3.SQLITE_IOERR: MAKE_ROOM,
    sqlite3.SQLITE_BUSY: "another mudroom has locked it for 30 s; is one stopped (Ctrl-Z)?",
    sqlite3.SQLITE_READONLY: "make it writable",
    sqlite3.SQLITE_CANTOPEN: "make it writable",
}
_READS = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)
_PASSED = f"the journal is whole: {READ_AGAIN}"
_DAMAGED = "if it is damaged, move it aside; forks and applies do not depend on it"
