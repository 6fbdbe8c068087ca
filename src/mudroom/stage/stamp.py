"""Tell by stat(2) whether a state file is still the same one.

A process that writes to a file or replaces it can set size and mtime, and may get the inode of a deleted file; it
cannot set the ctime. But clocks tick: two changes within one tick get the same time. So a stamp can be relied on later
only if that tick was over when it was taken. (git calls files without that guarantee "racily clean" and compares their
content: Documentation/technical/racy-git.txt.)
"""

from __future__ import annotations

import os
import sys
import time

from mudroom.core.clock import SKEW, EditWindow
from mudroom.core.tree.entry import Entry, StatResult
from mudroom.stage import disk
from mudroom.typing import NamedTuple

_TICK = 20_000_000
"""Nanoseconds: two ticks on the slowest kernel. Files are stamped by the timer tick, every 1 to 10 ms (CONFIG_HZ,
ktime_get_coarse_real_ts64)."""
_COARSE = 3_000_000_000
"""Nanoseconds, for file systems with a time resolution of one or two seconds (ext4 with small inodes, FAT)."""
_CLOCK_REALTIME_COARSE = 5
"""linux/time.h; ktime_get_coarse_real_ts64 stamps files. Python has no name for it."""
_SECOND = 1_000_000_000


class Stamp(NamedTuple):
    device: int
    inode: int
    size: int
    mtime: int
    """Nanoseconds since 1970."""
    ctime: int


def look(path: bytes) -> StatResult | os.stat_result:
    """Return lstat(2)'s result. On Windows, ``os.stat`` reports the creation time as ``st_ctime``, so a file rewritten
    in place with the same size and its mtime set back would look unchanged."""
    return disk.stat_at(None, path)


def stamp_of(path: bytes) -> Stamp | None:
    """Return the stamp, or None if the path is missing or cannot be examined. A link is not followed."""
    try:
        info = look(path)
    except OSError:
        return None
    return Stamp(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def file_clock() -> int:
    """Return the present time in nanoseconds, by the clock that stamps files."""
    if sys.platform != "linux":
        return time.time_ns() - _TICK
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


def is_earlier(ctime: int, moment: int) -> bool:
    """Return whether a file with this ctime was certainly not changed at ``moment`` or later. Both are in nanoseconds,
    by the clock that stamps files. A ctime in whole seconds is taken as a coarse clock's."""
    return ctime < moment if ctime % _SECOND else ctime + _COARSE <= moment


def is_outside(window: EditWindow, ctime: int) -> bool:
    """Return whether a file with this ctime, which has just been read, was certainly not changed in the window."""
    return is_earlier(ctime, window.first) or window.is_ahead(ctime, time.time_ns())


def as_recorded(entry: Entry, moment: int | None = None) -> Entry:
    """Return a project file's entry as it is recorded for later comparison. ``moment``: when it was read, in
    nanoseconds; None: now. A ctime within the clock's present tick becomes 0, which no file has: a later edit could get
    the same ctime, so the content must decide (git: "smudging" racily clean entries)."""
    now = file_clock()
    if entry.kind == "directory" or is_earlier(entry.ctime, now if moment is None else moment):
        return entry
    return entry if _is_far_ahead(entry.ctime, now) else entry._replace(ctime=0)


def is_settled(ctime: int, now: int) -> bool:
    """Return whether any change from ``now`` on is certain to give a file with this ctime another ctime. Both in
    nanoseconds."""
    return ctime + (_TICK if ctime % _SECOND else _COARSE) < now or _is_far_ahead(ctime, now)


def _is_far_ahead(ctime: int, now: int) -> bool:
    """Return whether a ctime is from before the clock was set back. No later change gets the same nanosecond, even when
    the clock reaches it again; on a coarse clock a change may get the same second."""
    return ctime % _SECOND != 0 and ctime > now + SKEW
