"""The user's own files and directories that no other user may write: a file that others can write could have been
replaced by a link or another file. On Windows, where a mode does not restrict access, access lists decide."""

from __future__ import annotations

import os
import stat
import sys

from mudroom.stage import disk

if sys.platform == "win32":
    from mudroom.core.registry import twin

    nt_private = twin("private")

_READ = os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC


def read(path: bytes, limit: int) -> bytes | None:
    """Return at most ``limit`` bytes of a file that only the user can access, or None if there is no such file."""
    if sys.platform == "win32":
        return nt_private.read(path, limit)
    try:
        descriptor = disk.open_path(path, _READ)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != disk.user() or info.st_mode & 0o077:
            return None
        return os.read(descriptor, limit)  # a read of this size returns the whole file at once
    except OSError:
        return None
    finally:
        os.close(descriptor)


def is_own(descriptor: int) -> bool:
    """Return whether an open file is regular, and only this user and root could have written it."""
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        return False
    if sys.platform == "win32":
        return nt_private.is_own(descriptor)
    return info.st_uid in (disk.user(), 0) and not info.st_mode & 0o022


def is_own_directory(path: bytes) -> bool:
    """Return whether a path is a directory, not a link, that belongs to the user, and that no other user may change.
    Raise OSError."""
    if sys.platform == "win32":
        return nt_private.is_private_directory(path)
    info = os.lstat(path)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == disk.user() and not info.st_mode & 0o022
