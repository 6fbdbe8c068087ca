"""The directory flag ``T`` (chattr(1)): ext4 puts each new subdirectory into its own block group.

ext4 without a journal, common in disk images for small virtual machines, passes over every inode in a block group that
was freed within the last five minutes (fs/ext4/ialloc.c, find_inode_bit and recently_deleted). Forks come and go, so
where all layers lie in one group a new file costs up to 50 times as much as in a quiet one. With a journal there is no
such search, and the flag has no effect. It is not inherited: EXT4_FL_INHERITED does not name it, so a layer's
directories stay together.
"""

from __future__ import annotations

import os
import sys

from mudroom.stage import disk
from mudroom.stage.filesystem_kind import filesystem_magic

_EXT = 0xEF53
"""The same for ext2, ext3 and ext4, which are the file systems with this flag."""
_GET, _SET, _TOP = 0x80086601, 0x40086602, 0x00020000
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS (both for a ``long``) and FS_TOPDIR_FL from linux/fs.h."""


def spread(path: bytes) -> bool:
    """Set the flag on a directory that belongs to the caller. Return whether the directory has it: other file systems
    lack it, and a container's filter may refuse the call."""
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
