"""Errands on the worker's disk: one folder for each attempt, written down before it is accepted.

    NAME.ATTEMPT/errand     the errand as it came (MessagePack)
    NAME.ATTEMPT/lock       held (flock(2)) by the process that runs it; free without an outcome: that process is gone
    NAME.ATTEMPT/out, err   output as it was printed, up to a limit
    NAME.ATTEMPT/cancel     a signal's number, for the process that runs it
    NAME.ATTEMPT/events     journal rows about it (JSON texts in a MessagePack list)
    NAME.ATTEMPT/archive.gz the exported fork
    NAME.ATTEMPT/outcome    the outcome (MessagePack); the last file that is written
    kept/NAME.ATTEMPT       the origin has everything, and the folder is gone

Rules of this file:
1. A folder appears by one rename, with its errand on disk and its lock held. An attempt is therefore accepted once, by
   one process, and a crash leaves it accepted or not.
2. A folder is removed after its name is in ``kept``; a name in ``kept`` is never accepted again.
3. A name is on disk before its command starts: one fsync(2) on the directory in which it appears. Contents are not
   synced, as a killed process loses none. After a power loss an errand may be unreadable or its outcome missing; it is
   not run again all the same. An archive is synced before its outcome tells its size.
4. Names come from the origin and are checked before they are part of a path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import msgspec

from mudroom.core.system.closing import Descriptor
from mudroom.errors import UsageError
from mudroom.ext.fleet.wire.message import Errand, ErrandOutcome
from mudroom.vault.lock import LOCK_EX, LOCK_SH, flock, try_lock
from mudroom.vault.sync import sync_directory

MOST_KEPT = 20_000
"""Names in ``kept``. Beyond them the oldest are removed."""
KEPT = b"kept"
_NEW = b"new-"


class AlreadyAccepted(UsageError):
    def __init__(self, name: str, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of the errand {name} was accepted before", "send another attempt")


class ErrandFolder:
    """One attempt's folder. ``_lock`` is written once, by the thread that accepts or recovers it."""

    def __init__(self, path: bytes, lock: int = -1) -> None:
        self.path = path
        self._lock = lock
        """The lock file's descriptor, while this process has the lock."""

    @property
    def errand(self) -> Errand:
        with open(self.path + b"/errand", "rb") as stream:
            return msgspec.msgpack.decode(stream.read(), type=Errand)

    @property
    def outcome(self) -> ErrandOutcome | None:
        try:
            with open(self.path + b"/outcome", "rb") as stream:
                return msgspec.msgpack.decode(stream.read(), type=ErrandOutcome)
        except FileNotFoundError:
            return None

    @property
    def events(self) -> list[bytes]:
        try:
            with open(self.path + b"/events", "rb") as stream:
                return msgspec.msgpack.decode(stream.read(), type=list[bytes])
        except FileNotFoundError:
            return []

    def save_events(self, rows: list[bytes]) -> None:
        _write(self.path + b"/events", msgspec.msgpack.encode(rows))

    @property
    def archive(self) -> bytes:
        return self.path + b"/archive.gz"

    def end(self, outcome: ErrandOutcome) -> None:
        """Write the outcome down, and release the lock."""
        _write(self.path + b"/outcome.new", msgspec.msgpack.encode(outcome))
        os.rename(self.path + b"/outcome.new", self.path + b"/outcome")
        self.release()

    def release(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def try_lock(self) -> bool:
        """Take the lock if its process is gone. Return False if that process runs."""
        lock = os.open(self.path + b"/lock", os.O_RDWR | os.O_CLOEXEC)
        if not try_lock(lock, LOCK_EX):
            os.close(lock)
            return False
        self._lock = lock
        return True

    @property
    def is_running(self) -> bool:
        """Whether a process has the lock."""
        if self._lock >= 0:
            return True
        with Descriptor(os.open(self.path + b"/lock", os.O_RDWR | os.O_CLOEXEC)) as lock:
            return not try_lock(lock, LOCK_SH)

    def wait(self) -> None:
        """Wait until the process that runs it has written the outcome, or is gone."""
        with Descriptor(os.open(self.path + b"/lock", os.O_RDWR | os.O_CLOEXEC)) as lock:
            flock(lock, LOCK_SH)

    def request_cancel(self, signal: int) -> None:
        """Leave a signal for the process that runs it."""
        _write(self.path + b"/cancel", b"%d" % signal)

    @property
    def cancel_signal(self) -> int:
        """The number of the signal that was left; 0: none."""
        try:
            with open(self.path + b"/cancel", "rb") as stream:
                text = stream.read(4)
        except FileNotFoundError:
            return 0
        return int(text) if text.isdigit() else 0


class ErrandFolders:
    """The folders for one origin and node. Thread-safe: the file system decides."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        os.makedirs(path + b"/" + KEPT, 0o700, exist_ok=True)

    def accept(self, errand: Errand) -> ErrandFolder:
        """Write an errand down, durably. Raise AlreadyAccepted if it was accepted before, UsageError if it cannot have
        this name."""
        name = folder_name(errand.errand, errand.attempt)
        if self._is_kept(name):
            raise AlreadyAccepted(errand.errand, errand.attempt)
        beside = self._path + b"/" + _NEW + b"%d-%s" % (os.getpid(), os.urandom(8).hex().encode())
        os.mkdir(beside, 0o700)
        lock = os.open(beside + b"/lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            flock(lock, LOCK_EX)
            _write(beside + b"/errand", msgspec.msgpack.encode(errand))
            try:
                os.rename(beside, self._path + b"/" + name)
            except OSError:  # a directory that is not empty has that name
                if not os.path.isdir(self._path + b"/" + name):
                    raise
                raise AlreadyAccepted(errand.errand, errand.attempt) from None
            sync_directory(self._path)
        except BaseException:
            os.close(lock)
            shutil.rmtree(beside, ignore_errors=True)
            raise
        folder = ErrandFolder(self._path + b"/" + name, lock)
        if self._is_kept(name):  # another process has marked it kept between the two looks
            folder.release()
            shutil.rmtree(folder.path)
            raise AlreadyAccepted(errand.errand, errand.attempt)
        return folder

    def find(self, errand: str, attempt: int) -> ErrandFolder | None:
        """Return the folder, or None. Raise UsageError if an errand cannot have this name."""
        path = self._path + b"/" + folder_name(errand, attempt)
        return ErrandFolder(path) if os.path.isdir(path) else None

    def __iter__(self) -> Iterator[ErrandFolder]:
        """Yield the folders of all attempts that are not kept. Remove what a crash has left of others."""
        for name in sorted(os.listdir(self._path)):
            folder = ErrandFolder(self._path + b"/" + name)
            if name.startswith(_NEW):
                if not os.path.exists(b"/proc/" + name.split(b"-")[1]):  # its lock is younger than its name
                    shutil.rmtree(folder.path, ignore_errors=True)
            elif name != KEPT and not self._is_kept(name):
                yield folder
            elif name != KEPT:
                shutil.rmtree(folder.path, ignore_errors=True)

    def mark_kept(self, folder: ErrandFolder) -> None:
        """Remove a folder whose outcome the origin has."""
        name = os.path.basename(folder.path)
        kept = self._path + b"/" + KEPT
        _write(kept + b"/" + name, b"")
        sync_directory(kept)
        shutil.rmtree(folder.path, ignore_errors=True)

    def prune(self) -> None:
        """Remove the oldest names beyond ``MOST_KEPT``."""
        with os.scandir(self._path + b"/" + KEPT) as scan:
            names = sorted((item.stat().st_mtime_ns, item.path) for item in scan)
        for _time, path in names[: max(len(names) - MOST_KEPT, 0)]:
            os.unlink(path)

    def _is_kept(self, name: bytes) -> bool:
        return os.path.lexists(self._path + b"/" + KEPT + b"/" + name)


def folder_name(errand: str, attempt: int) -> bytes:
    """Return a folder's name. Raise UsageError if an errand cannot have this name."""
    letters = errand.replace("-", "")
    if not (letters.isascii() and letters.isalnum() and letters == letters.lower() and 8 <= len(errand) <= 64):
        raise UsageError("the name of an errand is 8 to 64 lower-case letters, digits and hyphens")
    if not 0 < attempt < 1_000_000:
        raise UsageError(f"{attempt} is not the number of an attempt")
    return f"{errand}.{attempt}".encode()


def _write(path: bytes, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
