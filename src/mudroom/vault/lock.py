"""Locks: flock(2) on files of the vault.

The kernel drops a lock with the process, however that dies, so there are no stale locks to recognise. The file says
who holds it, for whoever has to wait.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

from mudroom.errors import FULL


def _nobody(_holder: str) -> None:
    """Wait without a word."""


class Lock:
    """Exclusive. ``with Lock(path, "what for"): …``, or ``acquire`` and ``release``."""

    def __init__(self, path: bytes, holder: str = "", waiting: Callable[[str], None] = _nobody) -> None:
        self._path, self._holder, self._waiting = path, holder, waiting
        self._descriptor = -1

    def __enter__(self) -> Lock:
        self.acquire(self._holder, self._waiting)
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def acquire(self, holder: str, waiting: Callable[[str], None] = _nobody) -> None:
        """Take the lock. If another process has it, call ``waiting`` with what that one says of itself, then wait;
        a signal handler that raises (Ctrl-C) ends the waiting and leaves nothing taken."""
        descriptor = self._open()
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting(os.pread(descriptor, 4096, 0).decode("utf-8", "replace").strip() or "another mudroom")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._sign(descriptor, holder)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def acquire_now(self) -> bool:
        """Take the lock if nobody has it."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sign(descriptor, self._holder)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _sign(self, descriptor: int, holder: str) -> None:
        os.ftruncate(descriptor, 0)
        try:
            os.pwrite(descriptor, holder.encode("utf-8", "replace")[:4096], 0)
        except OSError as error:
            if error.errno not in FULL:
                raise  # who holds it is only told; what makes room needs it, too

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
