"""The file system type below a directory, and whether its ctime shows that a file was edited: statfs(2)."""

from __future__ import annotations

import sys

from mudroom.core.tree.entry import Entry

OVERLAYFS, FUSE = 0x794C7630, 0x65735546
_FAT, _EXFAT = 0x4D44, 0x2011BAB0


def filesystem_magic(path: bytes) -> int:
    """Return statfs(2)'s f_type, its first word, which os.statvfs lacks. 0 on systems other than Linux."""
    if sys.platform != "linux":
        return 0
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None, use_errno=True).statfs(path, buffer) < 0:
        return 0
    return int.from_bytes(buffer.raw[:8], "little")


def has_weak_ctime(path: bytes) -> bool:
    """Return whether the file system may lack a ctime: FAT and exFAT show the mtime instead, which programs can set."""
    return filesystem_magic(path) in (FUSE, _FAT, _EXFAT)


def is_weak(entry: Entry) -> bool:
    """Return whether a file's ctime on such a file system may be its mtime. Its content must then be compared."""
    return entry.kind == "file" and entry.ctime == entry.mtime
