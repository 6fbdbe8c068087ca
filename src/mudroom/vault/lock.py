"""Locks: flock(2) on files of the vault.

The kernel releases a lock when its process ends, however it ends, so there are no stale locks to recognise. The lock
file names its holder, for waiters.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

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
    "wait_for",
]  # fmt: skip
"""With flock(2) itself, which files of this room take from here."""

PATIENCE = 1.0
"""Seconds of waiting for a fork, or for a turn, before the user is told about it."""

_LOOK = 0.005
"""Seconds between two attempts while nothing has been told yet."""


_LONGEST = 4096
"""Bytes of a holder's text."""


def _ignore(_holder: str) -> None:
    """Wait without a message."""


def wait_for(descriptor: int, operation: int, waiting: Callable[[], None], patience: float = 0.0) -> None:
    """Lock an open file (``LOCK_EX`` or ``LOCK_SH``). Call ``waiting`` once if it is not free after ``patience``
    seconds, then go on waiting."""
    until = time.monotonic() + patience
    while True:
        try:
            flock(descriptor, operation | LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                break
        time.sleep(_LOOK)
    waiting()
    flock(descriptor, operation)


def sign_again(path: bytes, holder: str) -> None:
    """Replace the holder's text. Only for the process that holds the lock."""
    descriptor = disk.open_path(path, os.O_RDWR | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    try:
        _sign(descriptor, holder)
    finally:
        os.close(descriptor)


def _sign(descriptor: int, holder: str) -> None:
    """Spaces cover the text of the previous holder. A file that is cut to nothing and written again is flushed to the
    disk when it is closed, and the next cut waits for that: ext4(5), auto_da_alloc."""
    try:
        text = holder.encode("utf-8", "replace")[:_LONGEST]
        pwrite(descriptor, text.ljust(os.fstat(descriptor).st_size), 0)
    except OSError as error:
        if error.errno not in FULL:
            raise  # a full disk: the holder's text is only information, and freeing space needs the lock, too


def holder_of(descriptor: int) -> str:
    """Return the text of the process that holds a lock, from the open lock file."""
    return pread(descriptor, _LONGEST, 0).decode("utf-8", "replace").strip() or "another mudroom"


class Lock:
    """Exclusive lock. Use ``with Lock(path, holder): …``, or ``acquire`` and ``release``. ``holder``: text for
    waiters.
    """

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
        try:
            wait_for(descriptor, LOCK_EX, lambda: waiting(holder_of(descriptor)), patience)
            _sign(descriptor, holder)
        except BaseException:
            os.close(descriptor)
            raise
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
        """Whether the file that is locked is still the one with this name: not moved away while the lock was waited
        for."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def unlink(self) -> None:
        """Remove the file before the release, unless it is another one by now."""
        if self.is_at_its_path:
            os.unlink(self._path)

    def forget(self) -> None:
        """Cover the holder's text before the release."""
        if self._descriptor >= 0:
            _sign(self._descriptor, "")

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
