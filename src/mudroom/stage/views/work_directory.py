"""Work directories of overlay mounts: a new one for each mount.

A ``volatile`` overlay leaves a marker in its work directory and refuses to mount it again, in case the system has
crashed (Documentation/filesystems/overlayfs.rst); mudroom detects that by the forks' fingerprints.
"""

from __future__ import annotations

import os

from mudroom.stage import safe_open
from mudroom.stage.layers.layer import remove_at


def new_work_directory(parent: bytes) -> bytes:
    """Create the next work directory in ``parent``, which is created too, and return its name."""
    works = safe_open.make_directory(parent)
    try:
        used = [int(name) for name in os.listdir(works) if name.isdigit()]
        name = b"%d" % (max(used, default=0) + 1)
        os.mkdir(name, 0o700, dir_fd=works)
        return name
    finally:
        os.close(works)


def remove_old_work_directories(parent: bytes, current: bytes) -> None:
    """Remove all work directories but ``current``. They are empty, but removing them takes time."""
    works = safe_open.open_directory(parent)
    try:
        for name in map(os.fsencode, os.listdir(works)):
            if name != current:
                remove_at(works, name)
    finally:
        os.close(works)
