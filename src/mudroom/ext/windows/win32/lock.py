"""flock(2) on Windows, by LockFileEx.

Rules of this file:
1. Windows locks bytes, and other processes cannot read a locked byte. The byte that stands for a file lies at 2**62,
   far behind any content, so waiting processes can read the holder's text ("LockFileEx": a region behind the file's
   end can be locked).
2. A lock dies with its open file, as flock(2)'s does. It belongs to the handle: two ``open`` in one process exclude
   each other, as with flock(2).
3. Ctrl-C cannot interrupt LockFileEx, so a wait is a sequence of attempts; a signal handler that raises ends it.
4. flock(2) changes a lock that is held; LockFileEx adds a second one. So the descriptor's lock is given up before the
   requested lock is taken. Between the two, another process may take it: flock(2) permits that.
"""

from __future__ import annotations

import errno
import os
import time
from ctypes import byref

from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.ext.windows.win32.process import library_here

LOCK_SH, LOCK_EX, LOCK_NB, LOCK_UN = 1, 2, 4, 8
"""As in Linux's <sys/file.h>."""
_BYTE = 1 << 62
_PAUSE = 0.005
"""Seconds between two attempts in a wait."""


def flock(descriptor: int, operation: int) -> None:
    """Lock or unlock an open file. Raise BlockingIOError with LOCK_NB if another open file has the lock."""
    import msvcrt

    handle: int = msvcrt.get_osfhandle(descriptor)  # type: ignore[attr-defined,unused-ignore]
    flock_handle(library_here(), handle, operation)


def flock_handle(library: Library, handle: int, operation: int) -> None:
    """Do as ``flock``, for a handle."""
    _unlock(library, handle)
    if operation & LOCK_UN:
        return
    flags = w.LOCKFILE_FAIL_IMMEDIATELY | (w.LOCKFILE_EXCLUSIVE_LOCK if operation & LOCK_EX else 0)
    while True:
        place = _place()
        try:
            library.LockFileEx(handle, flags, 0, 1, 0, byref(place))
            return
        except CallFailed as failed:
            if failed.code not in (w.ERROR_LOCK_VIOLATION, w.ERROR_IO_PENDING):
                raise OSError(errno.EIO, str(failed)) from failed
        if operation & LOCK_NB:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        time.sleep(_PAUSE)


def _unlock(library: Library, handle: int) -> None:
    place = _place()
    try:
        library.UnlockFileEx(handle, 0, 1, 0, byref(place))
    except CallFailed as failed:
        if failed.code not in (w.ERROR_NOT_LOCKED, w.ERROR_LOCK_VIOLATION):  # Wine returns the second
            raise OSError(errno.EIO, str(failed)) from failed


def _place() -> w.OVERLAPPED:
    return w.OVERLAPPED(Offset=_BYTE & 0xFFFFFFFF, OffsetHigh=_BYTE >> 32)


# --- reading and writing at a place, which Windows' C runtime lacks ---


def pread(descriptor: int, size: int, offset: int) -> bytes:
    """Read as pread(2) does, but the descriptor's position moves: only for files that are read in no other way."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)


def pwrite(descriptor: int, data: bytes, offset: int) -> int:
    """Write as pwrite(2) does, but the descriptor's position moves."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, data)
