"""Files that a command has left in directories that end with it: its private home and temporary directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence

from mudroom.core.result import LeftFile
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import is_below
from mudroom.stage import disk

_DIRECTORY = os.O_RDONLY | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC
MOST = 2000
"""Entries that are looked at: a command may have made a million."""


def is_untouched(places: Sequence[tuple[bytes, int]], placed: Mapping[bytes, bytes], before: Sequence[int]) -> bool:
    """Return whether nothing can be left, without a walk. ``before``: each place's mtime in nanoseconds, and its free
    inodes and blocks (``step_left``).

    A new file takes an inode. One that replaces or overwrites what was placed has another size, or, at the top, changes
    the directory's time.
    """
    now: list[int] = []
    for _path, descriptor in places:
        room = os.fstatvfs(descriptor)
        now += [os.fstat(descriptor).st_mtime_ns, room.f_ffree, room.f_bfree]
    return now == before and all(_has_size(file, len(placed[file]), places) for file in placed)


def _has_size(file: bytes, size: int, places: Sequence[tuple[bytes, int]]) -> bool:
    """Return whether a file in one of the places has a size; True for a file elsewhere."""
    above = max((place for place in places if is_below(file, place[0])), default=None)  # the deepest
    try:
        return above is None or disk.stat_at(above[1], file[len(above[0]) + 1 :]).st_size == size
    except OSError:
        return False  # removed


def left_files(places: Sequence[tuple[bytes, int]], placed: Mapping[bytes, bytes]) -> tuple[LeftFile, ...]:
    """Return the regular files in directories, sorted by path. ``places``: each directory's path and its descriptor.
    ``placed``: the content of files that were there before the command, by path; one with that content is left out.

    The names and links come from the command: no link is followed, and what is mounted there is not entered.
    """
    found: list[LeftFile] = []
    seen = 0
    for path, descriptor in places:
        for file, opened, status in _walk(descriptor, path):
            seen += 1
            if seen > MOST:
                return tuple(sorted(found))
            if stat.S_ISREG(status.st_mode) and not _is_as_placed(opened, file, status.st_size, placed):
                found.append(LeftFile(file, status.st_size))
    return tuple(sorted(found))


def _walk(top: int, path: bytes) -> Iterator[tuple[bytes, int, os.stat_result]]:
    """Yield each entry below a directory: its path, its directory's descriptor, its status."""
    device, pending = os.fstat(top).st_dev, [b""]
    while pending:
        below = pending.pop()
        try:
            opened = disk.open_beneath(top, below[1:], _DIRECTORY)
        except OSError:
            continue  # the command has closed it, or replaced it by a link
        try:
            for name in sorted(disk.names(opened)):
                status = disk.stat_at(opened, name)
                if status.st_dev != device:
                    continue
                yield path + below + b"/" + name, opened, status
                if stat.S_ISDIR(status.st_mode):
                    pending.append(below + b"/" + name)
        except FileNotFoundError:
            continue  # a process that still ends has removed it
        finally:
            os.close(opened)


def _is_as_placed(directory: int, path: bytes, size: int, placed: Mapping[bytes, bytes]) -> bool:
    content = placed.get(path)
    if content is None or size != len(content):
        return False
    try:
        opened = disk.open_at(directory, path.rpartition(b"/")[2], os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK)
    except OSError:
        return False
    with Descriptor(opened):
        return os.read(opened, size + 1) == content
