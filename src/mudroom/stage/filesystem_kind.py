"""The kind of the file system of a directory, and whether a ctime there tells that a file was edited."""

from __future__ import annotations

import os
import sys

from mudroom.core.tree.entry import Entry

OVERLAYFS, FUSE = 0x794C7630, 0x65735546
_FAT, _EXFAT = 0x4D44, 0x2011BAB0
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "rootfs")


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


def is_in_memory(path: bytes) -> bool:
    """Return whether the files at a path are of tmpfs(5) or its kind; True also if that cannot be found out.

    A store to a mapped page may change no time there: the first read of a shared, writable mapping makes the page
    writable, since these file systems have no ``page_mkwrite`` (vma_wants_writenotify in mm/mmap.c).
    """
    if sys.platform != "linux" or os.major(os.stat(path).st_dev):  # the major number of a file system on a disk
        return False
    from mudroom.stage.views.preflight import crossed, mounts

    way = crossed(os.path.realpath(path), mounts())
    return not way or way[-1].kind in _IN_MEMORY


def is_weak(entry: Entry) -> bool:
    """Return whether the ctime of a file on such a file system may be its mtime. Its content has to be compared."""
    return entry.kind == "file" and entry.ctime == entry.mtime
