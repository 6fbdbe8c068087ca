"""Write locks on open file descriptions: a process that may only read a file cannot take one, and threads in a process
exclude each other.

| | Linux: fcntl(2), "Open file description locks" | macOS: bsd/sys/fcntl.h in xnu |
| --- | --- | --- |
| F_OFD_SETLK, F_OFD_GETLK | from Python's ``fcntl`` | 90, 92; Python has no names for them |
| struct flock | type, whence, start, length, pid | start, length, pid, type, whence |
"""

from __future__ import annotations

import os
import struct
import sys

if sys.platform == "win32":
    from mudroom.core.registry import twin

    _locks = twin("lock")

    def try_write_lock(descriptor: int) -> bool:
        """Try to lock a whole file that is open for writing. Return whether that was possible. Raise OSError."""
        try:
            _locks.flock(descriptor, _locks.LOCK_EX | _locks.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_read_locked(_descriptor: int) -> bool:
        """Return False: a reader's lock cannot be told from a writer's, and the access list lets no other user in."""
        return False

else:
    import fcntl

    _IS_MAC = sys.platform == "darwin"
    _SET: int = getattr(fcntl, "F_OFD_SETLK", 90)
    _GET: int = getattr(fcntl, "F_OFD_GETLK", 92)

    def try_write_lock(descriptor: int) -> bool:
        """Try to lock a whole file that is open for writing. Return whether that was possible. Raise OSError."""
        try:
            fcntl.fcntl(descriptor, _SET, _request())
        except BlockingIOError:
            return False
        except PermissionError:  # EACCES means EAGAIN on other systems, and on some network file systems
            return False
        return True

    def is_read_locked(descriptor: int) -> bool:
        """Return whether a read lock prevents a write lock. Raise OSError."""
        reply = fcntl.fcntl(descriptor, _GET, _request())
        kind: int = struct.unpack("qqihh", reply)[3] if _IS_MAC else struct.unpack("hhqqi4x", reply)[0]
        return kind == fcntl.F_RDLCK

    def _request() -> bytes:
        if _IS_MAC:
            return struct.pack("qqihh", 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        return struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
