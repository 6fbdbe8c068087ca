"""One vault, one command at a time that may change the project.

flock(2) on a file: the kernel drops it with the process, however that dies, so there are no stale locks to recognise.
The file says who holds it, for whoever has to wait.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable


class Lock:
    def __init__(self, path: bytes) -> None:
        self._path = path
        self._descriptor = -1

    def acquire(self, holder: str, waiting: Callable[[str], None]) -> None:
        """Take the lock. If another process has it, call ``waiting`` with what that one says of itself, then wait;
        a signal handler that raises (Ctrl-C) ends the waiting and leaves nothing taken."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting(os.pread(descriptor, 4096, 0).decode("utf-8", "replace").strip() or "another mudroom")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode("utf-8", "replace")[:4096], 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1
