"""Whether a regular file is open or mapped anywhere else."""

from __future__ import annotations

import sys


def is_open_elsewhere(descriptor: int) -> bool:
    """Return whether another open file description, or a mapping, leads to the file of a descriptor; True also if the
    file system cannot tell. The descriptor must be the caller's only one of that file, opened for reading.

    F_SETLEASE with F_WRLCK fails with EAGAIN if the file is open anywhere else, also with a mapping whose descriptor is
    closed (fcntl(2); check_conflicting_open in fs/locks.c). Paths (O_PATH) do not count: they have to be opened first,
    and a write then changes the times.

    False on Windows: the job of a command has ended with all that it started, and scanners that hold a new file for a
    moment change nothing in it.
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
