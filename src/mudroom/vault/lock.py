"""Locks: flock(2) on the vault's files.

The kernel releases a lock when its process ends for any reason, so no lock is ever stale. The lock file names its
holder for waiters.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.errors import FULL
from mudroom.stage import disk

if sys.platform == "win32":
    from mudroom.core.registry import twin

    _twin = twin("lock")
    LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN = _twin.LOCK_EX, _twin.LOCK_NB, _twin.LOCK_SH, _twin.LOCK_UN
    flock, pread, pwrite = _twin.flock, _twin.pread, _twin.pwrite
else:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
    from os import pread, pwrite

__all__ = [
    "LOCK_EX", "LOCK_NB", "LOCK_SH", "LOCK_UN", "PATIENCE", "Lock", "flock", "holder_of", "sign_again",
    "try_lock", "wait_for",
]  # fmt: skip
"""Includes flock(2) itself: the other files of this room import it from here."""

PATIENCE = 1.0
"""Seconds to wait for a fork or a turn before the user is told."""

_LOOK = 0.005
"""Seconds between two attempts before the user is told."""


_LONGEST = 4096
"""Maximum bytes of a holder's text."""


def _ignore(_holder: str) -> None:
    """Wait without a message."""


def try_lock(descriptor: int, operation: int) -> bool:
    """Lock an open file (``LOCK_EX`` or ``LOCK_SH``) if it is free. Return whether it was."""
    try:
        flock(descriptor, operation | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for(descriptor: int, operation: int, waiting: Callable[[], None], patience: float = 0.0) -> None:
    """Lock an open file (``LOCK_EX`` or ``LOCK_SH``). Call ``waiting`` once if it is not free after ``patience``
    seconds, then go on waiting."""
    until = time.monotonic() + patience
    while True:
        if try_lock(descriptor, operation):
            return
        if time.monotonic() >= until:
            break
        time.sleep(_LOOK)
    waiting()
    flock(descriptor, operation)


def sign_again(path: bytes, holder: str) -> None:
    """Replace the holder's text. Only for the process that holds the lock."""
    with Descriptor(disk.open_path(path, os.O_RDWR | disk.O_NOFOLLOW | disk.O_CLOEXEC)) as descriptor:
        _sign(descriptor, holder)


def _sign(descriptor: int, holder: str) -> None:
    """Pad with spaces to cover the previous holder's text.

    The file is not truncated: ext4 flushes a truncated and rewritten file when it is closed, and the next truncation
    waits for that (ext4(5), auto_da_alloc).
    """
    try:
        text = holder.encode("utf-8", "replace")[:_LONGEST]
        pwrite(descriptor, text.ljust(os.fstat(descriptor).st_size), 0)
    except OSError as error:
        if error.errno not in FULL:
            raise  # a full disk: the holder's text is only information, and freeing space needs the lock, too


def holder_of(descriptor: int) -> str:
    """Return the lock holder's text, from the open lock file."""
    return pread(descriptor, _LONGEST, 0).decode("utf-8", "replace").strip() or "another mudroom"


class Lock:
    """Exclusive lock: ``with Lock(path, holder): …``, or ``acquire`` and ``release``. ``holder``: text for waiters."""

    def __init__(self, path: bytes, holder: str = "", waiting: Callable[[str], None] = _ignore) -> None:
        self._path, self._holder, self._waiting = path, holder, waiting
        self._descriptor = -1

    def __enter__(self) -> Lock:
        self.acquire(self._holder, self._waiting)
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def acquire(self, holder: str, waiting: Callable[[str], None] = _ignore, patience: float = 0.0) -> None:
        """Take the lock. If another process still holds it after ``patience`` seconds, call ``waiting`` with the
        holder's text, and go on waiting.

        A signal handler that raises (Ctrl-C) ends the wait without taking the lock.
        """
        descriptor = self._open()
        with ClosedOnError(descriptor):
            wait_for(descriptor, LOCK_EX, lambda: waiting(holder_of(descriptor)), patience)
            _sign(descriptor, holder)
        self._descriptor = descriptor

    def acquire_now(self) -> bool:
        """Take the lock if it is free. Return whether it was taken."""
        descriptor = self._open()
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            _sign(descriptor, self._holder)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def _open(self) -> int:
        return disk.open_path(self._path, os.O_RDWR | os.O_CREAT | disk.O_CLOEXEC, 0o600)

    @property
    def is_at_its_path(self) -> bool:
        """Whether the locked file still has this name: it was not moved away while this process waited for the lock."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def unlink(self) -> None:
        """Remove the file before the release, unless another file has the name now."""
        if self.is_at_its_path:
            os.unlink(self._path)

    def forget(self) -> None:
        """Erase the holder's text before the release."""
        if self._descriptor >= 0:
            _sign(self._descriptor, "")

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
