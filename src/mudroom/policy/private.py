"""Files of the user's own state that nobody else may have chosen, or read: where others may write, a link or another
file could lie in the place of one."""

from __future__ import annotations

import os
import stat

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(path: bytes, limit: int) -> bytes | None:
    """At most ``limit`` bytes of a file that is the user's alone; None if there is no such file."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            return None
        return os.read(descriptor, limit)  # of a file of this size all of it comes at once
    except OSError:
        return None
    finally:
        os.close(descriptor)
