"""The flag ``T`` of a directory (chattr(1)): ext4 puts each new directory in it into a block group of its own.

ext4 without a journal, as disk images of small virtual machines are, passes over every inode of a block group that was
freed within the last five minutes (fs/ext4/ialloc.c, find_inode_bit and recently_deleted). Forks come and go, so where
all layers lie in one group a new file costs up to 50 times as much as in a quiet one. With a journal there is no such
search, and the flag changes nothing. It is not inherited: EXT4_FL_INHERITED does not name it, so the directories of a
layer stay together.
"""

from __future__ import annotations

import os
import sys

from mudroom.stage import disk
from mudroom.stage.filesystem_kind import filesystem_magic

_EXT = 0xEF53
"""Of ext2, ext3 and ext4 alike, which are those that know the flag."""
_GET, _SET, _TOP = 0x80086601, 0x40086602, 0x00020000
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS (both for a ``long``) and FS_TOPDIR_FL of linux/fs.h."""


def spread(path: bytes) -> bool:
    """Set the flag on a directory of the caller's. Return whether the directory has it: other file systems have none,
    and a container's filter may refuse the call."""
    if filesystem_magic(path) != _EXT:
        return False
    try:
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _set(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _set(descriptor: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    written = bytearray(8)
    fcntl.ioctl(descriptor, _GET, written)
    flags = int.from_bytes(written[:4], sys.byteorder)  # the kernel reads and writes an int
    if not flags & _TOP:
        fcntl.ioctl(descriptor, _SET, (flags | _TOP).to_bytes(4, sys.byteorder) + bytes(4))
    return True
