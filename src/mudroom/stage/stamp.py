"""Tell by stat(2) whether a state file is still the same one.

A process that writes to a file or replaces it can set size and mtime, and may get the inode of a deleted file; it
cannot set the ctime. But clocks tick: two changes within one tick get the same time. So a stamp can be relied on later
only if that tick was over when it was taken. (git calls files without that guarantee "racily clean" and compares their
content: Documentation/technical/racy-git.txt.)
"""

from __future__ import annotations

import os
from typing import NamedTuple

_TICK = 20_000_000
"""Nanoseconds, two ticks of the slowest kernel: files are stamped by the timer tick, every 1 to 10 ms (CONFIG_HZ,
ktime_get_coarse_real_ts64)."""
_COARSE = 3_000_000_000
"""Nanoseconds, for file systems with a time resolution of one or two seconds (ext4 with small inodes, FAT)."""
_SECOND = 1_000_000_000


class Stamp(NamedTuple):
    device: int
    inode: int
    size: int
    mtime: int
    """Nanoseconds since 1970."""
    ctime: int


def stamp_of(path: bytes) -> Stamp | None:
    """Return the stamp, or None if the path is missing or cannot be examined. A link is not followed."""
    try:
        info = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return Stamp(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def is_settled(ctime: int, now: int) -> bool:
    """Return whether any change from ``now`` on is certain to give a file with this ctime another ctime. Both in
    nanoseconds."""
    return ctime + (_TICK if ctime % _SECOND else _COARSE) < now
