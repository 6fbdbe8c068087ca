"""Test whether a regular file is open or mapped elsewhere."""

from __future__ import annotations

import sys


def is_open_elsewhere(descriptor: int) -> bool:
    """Return whether another open file description, or a mapping, refers to the descriptor's file; True also if the
    file system cannot tell. The descriptor must be the caller's only one for that file, opened for reading.

    F_SETLEASE with F_WRLCK fails with EAGAIN if the file is open anywhere else, even through a mapping whose descriptor
    is closed (fcntl(2); check_conflicting_open in fs/locks.c). O_PATH descriptors do not count: they have to be opened
    again before a write, and the write changes the times.

    False on Windows: the command's job has ended with all its processes, and scanners that hold a new file for a moment
    do not change it.
    """
    if sys.platform == "win32":
        return False
    if sys.platform != "linux":
        return True
    import fcntl

    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False
