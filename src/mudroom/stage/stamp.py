"""Whether a file of mudroom's own is still the one that was looked at: by what stat(2) says of it.

Who writes to a file or puts another one in its place can set its size and its mtime, and may be given the inode of one
that is gone; nobody can set its ctime. But clocks tick: what happens twice within a tick has one time. So what is known
of a file is good for later only once that tick is over (git calls the others "racily clean", and looks into them:
Documentation/technical/racy-git.txt).
"""

from __future__ import annotations

import os
from typing import NamedTuple

_TICK = 20_000_000
"""Nanoseconds, two ticks of the slowest kernel: what stamps files is the timer, every 1 to 10 ms (CONFIG_HZ,
ktime_get_coarse_real_ts64)."""
_COARSE = 3_000_000_000
"""Where times are whole seconds, or every second one (ext4 with small inodes, FAT)."""
_SECOND = 1_000_000_000


class Stamp(NamedTuple):
    device: int
    inode: int
    size: int
    mtime: int
    """Nanoseconds since 1970."""
    ctime: int


def stamp_of(path: bytes) -> Stamp | None:
    """None: there is nothing, or it cannot be looked at. A link is not followed."""
    try:
        info = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return Stamp(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def is_settled(ctime: int, now: int) -> bool:
    """Whether whatever is done from ``now`` on to a file that has this ctime gives it another one."""
    return ctime + (_TICK if ctime % _SECOND else _COARSE) < now
