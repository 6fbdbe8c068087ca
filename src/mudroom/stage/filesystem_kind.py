"""The kind of the file system of a directory, and whether a ctime there tells that a file was edited: statfs(2)."""

from __future__ import annotations

import sys

from mudroom.core.tree.entry import Entry

OVERLAYFS, FUSE = 0x794C7630, 0x65735546
_FAT, _EXFAT = 0x4D44, 0x2011BAB0


def filesystem_magic(path: bytes) -> int:
    """Return f_type of statfs(2), its first word, which os.statvfs lacks. 0 on other systems than Linux."""
    if sys.platform != "linux":
        return 0
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None, use_errno=True).statfs(path, buffer) < 0:
        return 0
    return int.from_bytes(buffer.raw[:8], "little")


def has_weak_ctime(path: bytes) -> bool:
    """Return whether the file system may have no ctime of its own: FAT and exFAT show the mtime, which programs set."""
    return filesystem_magic(path) in (FUSE, _FAT, _EXFAT)


def is_weak(entry: Entry) -> bool:
    """Return whether the ctime of a file on such a file system may be its mtime. Its content has to be compared."""
    return entry.kind == "file" and entry.ctime == entry.mtime
