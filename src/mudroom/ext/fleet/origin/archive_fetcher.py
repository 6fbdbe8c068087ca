"""Archives: the wanted ones, how they come, and how forks are made from them.

An archive is kept until the log says that its fork is here. A process that was killed in between brings it again, and
the vault knows it by its errand and digest.
"""

from __future__ import annotations

import os
import time
from _blake2 import blake2b
from collections.abc import Callable

from mudroom.core.system.closing import Descriptor
from mudroom.ext.fleet.origin import claim
from mudroom.ext.fleet.origin.errand_log import AttemptRow
from mudroom.ext.fleet.origin.errand_queue import ErrandQueue
from mudroom.ext.fleet.origin.worker_session import Key, WorkerSession
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import LinkError
from mudroom.typing import NamedTuple, Protocol

# --- An archive that comes from a worker part by part, in a file that a later link continues ---


_NAME = b"/archive"
_READ = 1 << 20


class IncomingArchive:
    """The file is the origin's own, and is written at its end only. Owner: the verb's thread."""

    def __init__(self, directory: bytes, announced: int, digest: bytes) -> None:
        """``announced``: the whole archive's size in bytes; ``digest``: its digest. Both are the worker's claims."""
        self._path, self._announced, self._digest = directory + _NAME, announced, digest
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._opened = os.open(self._path, flags, 0o600)
        self.size = os.fstat(self._opened).st_size
        if self.size > announced:  # from an earlier announcement
            os.ftruncate(self._opened, 0)
            self.size = 0
        self.resumed_from = self.size
        """Bytes that an earlier link has brought."""

    @staticmethod
    def path_in(directory: bytes) -> bytes:
        return directory + _NAME

    @property
    def is_whole(self) -> bool:
        return self.size == self._announced

    def add(self, offset: int, data: bytes) -> None:
        """Write a part. Raise LinkError if it is not the next one, or more than was announced."""
        if offset != self.size:
            raise LinkError(f"sent bytes {offset:,} of an archive of which {self.size:,} have come")
        if self.size + len(data) > self._announced:
            raise LinkError(f"sent more of an archive than the {self._announced:,} bytes that it announced")
        view = memoryview(data)
        while view:
            written = os.pwrite(self._opened, view, self.size)
            self.size += written
            view = view[written:]

    def is_valid(self) -> bool:
        """Return whether the file has the announced size and digest."""
        with Descriptor(os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as opened:
            hasher, size = blake2b(digest_size=32), 0
            while block := os.read(opened, _READ):
                hasher.update(block)
                size += len(block)
            return size == self._announced and hasher.digest() == self._digest

    def close(self) -> None:
        if self._opened >= 0:
            os.close(self._opened)
            self._opened = -1

    def remove(self) -> None:
        self.close()
        os.unlink(self._path)


BATCH = 32
"""Archives that are imported together, at most."""
STALL = 120.0
"""Seconds without a byte from the archives that were asked for, after which a worker's link is ended."""


class ImportedArchive(NamedTuple):
    fork: str
    changed: int
    reason: str = ""
    """Why the archive was refused; empty: it was not."""


class ArchiveImporter(Protocol):
    """The importer that makes forks from archives (``ext/fleet/origin/archive_import.py``)."""

    def import_archives(self, archives: list[tuple[AttemptRow, str, bytes]]) -> list[ImportedArchive]:
        """Make forks from archives: rows, wished names and files. An archive that came before makes no second fork."""


class ArchiveFetcher:
    """Owner: the verb's thread."""

    def __init__(
        self,
        queue: ErrandQueue,
        sessions: dict[str, WorkerSession],
        importer: ArchiveImporter,
        fetch: str,
        requested: frozenset[Key] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``fetch``: ``all``, ``best``, ``best:N`` or ``none``. Late archives are always fetched, and so are the
        attempts in ``requested``."""
        self._queue, self._sessions, self._importer, self._fetch = queue, sessions, importer, fetch
        self._requested, self._clock = requested, clock
        self._unavailable: set[Key] = set()
        """Attempts whose archives are on machines that cannot be reached now."""
        self._archives: dict[Key, IncomingArchive] = {}
        self._complete: list[Key] = []
        self._progress_at: dict[str, float] = {}
        """By worker: when an archive byte came last, or none was awaited."""

    def resume(self) -> None:
        """Continue where another process was killed."""
        for row in list(self._queue.rows.values()):
            if row.state == "fetched":
                self._queue.mark_kept(row, None)

    @property
    def is_busy(self) -> bool:
        return bool(self._archives or self._complete)

    def wanted(self) -> list[AttemptRow]:
        """Return the attempts whose archives are to come here and have not."""
        queue = self._queue
        unfetched = queue.sorted_rows(queue.unfetched - self._unavailable)
        always = [row for row in unfetched if row.state == "late" or row.key in self._requested]
        ended = [row for row in unfetched if row.state == "ended" and row.key not in self._requested]
        if self._fetch == "all":
            return ended + always
        if self._fetch == "none" or queue.unfinished:
            return always
        count = int(self._fetch.partition(":")[2] or 1)
        here = sum(bool(row.fork) for row in queue.rows.values() if row.state in ("fetched", "kept"))
        return claim.ranked(ended)[: max(0, count - here)] + always

    def is_wanted(self, row: AttemptRow) -> bool:
        """Return whether the archive of an attempt that has just ended is to come here now."""
        if row.key not in self._queue.unfetched:
            return False
        if row.state == "late" or row.key in self._requested or self._fetch == "all":
            return row.state != "expired" or row.key in self._requested
        return self._fetch != "none" and any(row.key == other.key for other in self.wanted())

    def give_up(self, key: Key) -> None:
        """Note that an archive cannot be had."""
        self._requested -= {key}
        self.drop(key)

    def defer(self, key: Key) -> None:
        """Note that an archive cannot be had in this run. It may be later."""
        self._unavailable.add(key)

    def start(self) -> None:
        """Ask for archives, as many at one time from a worker as it runs errands."""
        for row in self.wanted():
            session = self._sessions.get(row.worker)
            if row.key in self._archives or row.key in self._complete or row.outcome is None:
                continue
            if session is None or not session.is_greeted or session.fetches >= session.slots:
                continue
            archive = self._opened(row, row.outcome)
            if archive.is_whole:
                archive.close()
                self._complete.append(row.key)
                continue
            if not session.fetches:
                self._progress_at[session.name] = self._clock()
            self._archives[row.key] = archive
            stream = session.open_stream(row.key, is_fetch=True)
            self._queue.send_later(session, wire.FETCH, wire.Fetch(*row.key, archive.size), stream)

    def receive(self, session: WorkerSession, row: AttemptRow, stream: int, part: wire.ArchivePart) -> None:
        """Take a part of an archive. Raise LinkError if it was not asked for, or if the whole is not the announced
        one."""
        archive = self._archives.get(row.key)
        if archive is None or not session.is_fetching(stream):
            raise LinkError("sent an archive that was not asked for")
        try:
            archive.add(part.offset, part.data)
        except LinkError as error:
            self._queue.settle(self._queue.put(row, "failed", f"{session.name} {error.reason}"))
            raise
        if part.data:
            self._progress_at[session.name] = self._clock()
        if part.is_last or archive.is_whole:
            session.close_stream(stream)
            del self._archives[row.key]
            self._check(row, archive, session)

    def _opened(self, row: AttemptRow, outcome: wire.ErrandOutcome) -> IncomingArchive:
        """Return the archive as far as an earlier link has brought it; from its beginning if those bytes are wrong."""
        archive = IncomingArchive(self._queue.result_directory(row), outcome.archive, outcome.digest)
        if archive.is_whole and not archive.is_valid():
            archive.remove()
        else:
            archive.close()
        return IncomingArchive(self._queue.result_directory(row), outcome.archive, outcome.digest)

    def _check(self, row: AttemptRow, archive: IncomingArchive, session: WorkerSession) -> None:
        if archive.is_valid():
            archive.close()
            self._complete.append(row.key)
            return
        archive.remove()
        if archive.resumed_from:
            return  # the earlier link's part may be damaged: it is asked for again from its beginning
        self._queue.settle(self._queue.put(row, "failed", f"{session.name} sent another archive than it announced"))
        raise LinkError("sent another archive than it announced")

    def stalled(self, timeout: float) -> list[WorkerSession]:
        """Return the workers that have sent no archive byte for so long, although they answer."""
        now, linked = self._clock(), [session for session in self._sessions.values() if session.link is not None]
        return [session for session in linked if session.fetches and now > self._progress_at[session.name] + timeout]

    def drop(self, key: Key) -> None:
        """Close an archive that does not come over this link any more."""
        archive = self._archives.pop(key, None)
        if archive is not None:
            archive.close()

    def disconnected(self, name: str) -> None:
        """A worker's link is over."""
        for key in [key for key in self._archives if self._queue.rows[key].worker == name]:
            self.drop(key)

    def close(self) -> None:
        for key in list(self._archives):
            self.drop(key)

    def import_ready(self) -> list[tuple[WorkerSession, str]]:
        """Make forks from the archives that are here, once no other is on its way or a batch is full. Return workers
        whose archives were refused, with the reason."""
        if not self._complete or (len(self._complete) < BATCH and self._archives):
            return []
        keys, self._complete = self._complete[:BATCH], self._complete[BATCH:]
        queue, rows = self._queue, [self._queue.rows[key] for key in keys]
        files = [IncomingArchive.path_in(queue.result_directory(row)) for row in rows]
        labels = [queue.errands[row.errand].label for row in rows]
        imported = self._importer.import_archives(list(zip(rows, labels, files, strict=True)))
        refused = []
        for key, result in zip(keys, imported, strict=True):
            row, session = queue.rows[key], self._sessions.get(queue.rows[key].worker)
            if result.reason:
                reason = claim.line(result.reason)
                queue.settle(queue.put(row._replace(fork=""), "failed", reason))
                if session is not None:
                    refused.append((session, reason))
                continue
            queue.mark_kept(queue.put(row._replace(fork=result.fork, changed=result.changed), "fetched", ""), session)
            queue.settle(queue.rows[key])
        queue.commit()
        for file in files:  # not before the log says so: it is found again, and makes no second fork
            os.unlink(file)
        return refused
