"""Durable names: fsync(2) on a file syncs its content, not the directory entry that names it."""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.core.system.closing import Descriptor
from mudroom.stage import disk


def sync_all(path: bytes) -> None:
    """Make everything on the file system of a directory durable."""
    _sync(path, disk.sync_filesystem)


def sync_directory(path: bytes) -> None:
    """Make the names in a directory durable."""
    _sync(path, disk.sync)


def _sync(path: bytes, sync: Callable[[int], None]) -> None:
    with Descriptor(disk.open_path(path, os.O_RDONLY | disk.O_DIRECTORY | disk.O_CLOEXEC)) as descriptor:
        sync(descriptor)
