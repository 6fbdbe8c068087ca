"""Files that a command has left in directories that end with it: its private home and temporary directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence

from mudroom.core.result import LeftFile

MOST = 2000
"""Entries that are looked at: a command may have made a million."""


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
    """Yield each entry below a directory that is no directory itself: its path, its directory's descriptor, its status.
    Each directory counts as one entry, too."""
    device, pending = os.fstat(top).st_dev, [(path, b".")]
    while pending:
        above, below = pending.pop()
        try:
            opened = _open_below(top, below)
        except OSError:
            continue  # the command has closed it, or replaced it by a link
        try:
            for name in sorted(os.fsencode(name) for name in os.listdir(opened)):
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                if status.st_dev != device:
                    continue
                yield above + b"/" + name, opened, status
                if stat.S_ISDIR(status.st_mode):
                    pending.append((above + b"/" + name, below + b"/" + name))
        except FileNotFoundError:
            continue  # a process that still ends has removed it
        finally:
            os.close(opened)


def _open_below(top: int, path: bytes) -> int:
    """Open a directory below another one, without a link on the way."""
    at = os.dup(top)
    for name in path.split(b"/"):
        try:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def _is_as_placed(directory: int, path: bytes, size: int, placed: Mapping[bytes, bytes]) -> bool:
    content = placed.get(path)
    if content is None or size != len(content):
        return False
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(path.rpartition(b"/")[2], flags, dir_fd=directory)
    except OSError:
        return False
    try:
        return os.read(opened, size + 1) == content
    finally:
        os.close(opened)
