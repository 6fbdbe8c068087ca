"""A tree's disk usage in bytes: allocated blocks, as du(1) counts them.

Holes cost nothing. A file with several names is counted once, at the first. Extents that reflinks share are counted
with each file, because no file system reports sharing cheaply.
"""

from __future__ import annotations

import os
import sys

from mudroom.core.system.closing import Descriptor
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.stage import disk
from mudroom.stage.beneath import O_PATH, directory

_BLOCK = 512
"""The unit of st_blocks on every file system: stat(3type)."""

_OVERLAYS_OWN = regex(rb"/forks/[^/]+/(?:(?:caches/)?work/[0-9a-f]+|engine/graph/overlay/[0-9a-f]+/work)/work\Z")
"""The kernel makes this directory with mode 0 at each mount (fs/overlayfs/super.c, ovl_workdir_create). It is empty."""

Seen = set[tuple[int, int]]
"""Device and inode for each file with several names that was already counted."""


def measure(path: bytes, seen: Seen | None = None, remarks: list[str] | None = None) -> int:
    """Return a file's or a whole tree's disk usage in bytes; 0 if it is absent.

    Links are not followed, and no mode is changed. An unreadable directory's contents are not counted; ``remarks``
    names the directory.
    """
    seen = set() if seen is None else seen
    above, _slash, name = path.rpartition(b"/")
    try:
        info = os.lstat(path)
        root = disk.open_path(above, O_PATH | disk.O_DIRECTORY | disk.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    total = _counted(info, seen)
    pending = [name] if info.st_mode & 0o170000 == 0o040000 else []
    with Descriptor(root):
        while pending:
            at = pending.pop()
            try:
                total += _measure_directory(root, at, seen, pending)
            except FileNotFoundError:
                continue  # just removed
            except PermissionError:
                if remarks is not None and not _OVERLAYS_OWN.search(above + b"/" + at):
                    remarks.append(f"{show(above + b'/' + at)} cannot be read: its contents are not counted")
    return total


def _measure_directory(root: int, at: bytes, seen: Seen, pending: list[bytes]) -> int:
    def counted(info: os.stat_result) -> tuple[int, bool]:
        return _counted(info, seen), info.st_mode & 0o170000 == 0o040000

    total = 0
    with directory(root, at) as opened:
        for name, (size, is_directory) in disk.stats(opened, counted):
            total += size
            if is_directory:
                pending.append(at + b"/" + name)
    return total


def _counted(info: os.stat_result, seen: Seen) -> int:
    if info.st_nlink > 1 and info.st_mode & 0o170000 != 0o040000:
        key = (info.st_dev, info.st_ino)
        if key in seen:
            return 0
        seen.add(key)
    return info.st_size if sys.platform == "win32" else info.st_blocks * _BLOCK
