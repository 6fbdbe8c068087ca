"""Results that a worker holds for an origin: outcomes and archives, sent on any link until the origin has them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

from mudroom.errors import UsageError
from mudroom.ext.fleet.wire.frame import Frame
from mudroom.ext.fleet.wire.message import (
    ARCHIVE,
    EVENT,
    OUTCOME,
    ArchivePart,
    ErrandOutcome,
    EventRow,
    Fetch,
    Kept,
    frame_of,
)
from mudroom.ext.fleet.worker.errand_run import discard, recover
from mudroom.ext.fleet.worker.folder import ErrandFolder, ErrandFolders
from mudroom.ext.fleet.worker.outbox import LinkOutbox
from mudroom.ext.fleet.worker.session_cache import SessionCache
from mudroom.ext.fleet.worker.spool import OutputSource
from mudroom.ext.fleet.worker.thread_pool import ThreadPool

PIECE = 1 << 18
"""Bytes in one part."""


class ArchiveSource:
    """Owner: the outbox's thread."""

    def __init__(self, path: bytes, stream: int, offset: int) -> None:
        """Raise FileNotFoundError if there is no archive."""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size
        self._stream, self._offset = stream, min(offset, self._size)

    @property
    def is_closed(self) -> bool:
        return self._file < 0

    def next_frame(self) -> Frame | None:
        if self._file < 0:
            return None
        data = os.pread(self._file, PIECE, self._offset)
        part = ArchivePart(self._offset, data, self._offset + len(data) >= self._size or not data)
        self._offset += len(data)
        if part.is_last:
            self.close()
        return frame_of(ARCHIVE, part, self._stream)

    def close(self) -> None:
        opened, self._file = self._file, -1
        if opened >= 0:
            os.close(opened)


MOST_FETCHES = 64
"""Archives that are being sent."""
MOST_WAITERS = 1_000
"""Errands from earlier processes that are waited for."""
CLEANUPS = 2
"""Forks that are discarded at once."""


class HeldResults:
    """``_lock`` guards the archives that are sent and the threads that wait."""

    def __init__(self, folders: ErrandFolders, outbox: LinkOutbox, sessions: SessionCache) -> None:
        self._folders, self._outbox, self._sessions = folders, outbox, sessions
        self._cleanups = ThreadPool(CLEANUPS)
        self._lock = threading.Lock()
        self._fetches: list[ArchiveSource] = []
        self._waiters: list[threading.Thread] = []
        """They wait for errands that run in earlier worker processes."""

    def find(self, errand: str, attempt: int) -> ErrandFolder:
        """Raise UsageError if there is no such attempt here."""
        folder = self._folders.find(errand, attempt)
        if folder is None:
            raise UsageError(f"this worker has no attempt {attempt} of the errand {errand}")
        return folder

    def finish(self, source: OutputSource, folder: ErrandFolder, outcome: ErrandOutcome, stream: int) -> None:
        """Send the journal rows and the outcome behind the output."""
        rows = [frame_of(EVENT, EventRow(row), stream) for row in folder.events]
        source.finish([*rows, frame_of(OUTCOME, outcome, stream)])
        self._outbox.wake(source)

    def resend(self, wanted: Fetch, stream: int) -> None:
        """Send an errand's output and outcome on this stream, now or when it has ended. Raise UsageError if it is not
        here, or too many are waited for."""
        folder = self.find(wanted.errand, wanted.attempt)
        source = OutputSource(folder.path, stream)
        outcome = folder.outcome
        if outcome is not None:
            self.finish(source, folder, outcome, stream)
            return
        with self._lock:
            self._waiters = [waiter for waiter in self._waiters if waiter.is_alive()]
            if len(self._waiters) >= MOST_WAITERS:
                source.close()
                raise UsageError(f"{MOST_WAITERS} errands are waited for", "ask later")
            args = (folder, source, stream)
            waiter = threading.Thread(target=self._resend_when_ended, args=args, name="resend", daemon=True)
            self._waiters.append(waiter)
        waiter.start()

    def _resend_when_ended(self, folder: ErrandFolder, source: OutputSource, stream: int) -> None:
        while (outcome := folder.outcome) is None:
            if folder.try_lock():
                outcome = folder.outcome or recover(folder, self._sessions)
                folder.release()
                break
            folder.wait()
        self.finish(source, folder, outcome, stream)

    def send_archive(self, wanted: Fetch, stream: int) -> None:
        """Send an archive from an offset on. Raise UsageError if there is none, or too many are being sent."""
        folder = self.find(wanted.errand, wanted.attempt)
        try:
            source = ArchiveSource(folder.archive, stream, wanted.offset)
        except FileNotFoundError:
            raise UsageError("the errand has no archive", "it has changed nothing") from None
        with self._lock:
            self._fetches = [fetch for fetch in self._fetches if not fetch.is_closed]
            if len(self._fetches) >= MOST_FETCHES:
                source.close()
                raise UsageError(f"{MOST_FETCHES} archives are being sent", "fetch it later")
            self._fetches.append(source)
        self._outbox.wake(source)

    def discard(self, wanted: Kept) -> None:
        """Discard an errand's fork and folder, once the origin has its outcome. An errand that is not here was kept
        before. Raise UsageError if it has no outcome."""
        folder = self._folders.find(wanted.errand, wanted.attempt)
        if folder is None:
            return
        if folder.outcome is None:
            raise UsageError("the errand has not ended")
        self._cleanups.submit(partial(self._discard, folder))

    def _discard(self, folder: ErrandFolder) -> None:
        discard(folder, self._sessions)
        self._folders.mark_kept(folder)

    def submit(self, cleanup: Callable[[], None]) -> None:
        """Run a cleanup beside the errands."""
        self._cleanups.submit(cleanup)

    def join(self) -> None:
        """Wait until the cleanups are done."""
        self._cleanups.join()
