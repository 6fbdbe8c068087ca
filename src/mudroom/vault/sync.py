"""Names made durable: fsync(2) of a file syncs its content, not the directory that names it."""

from __future__ import annotations

import os


def sync_directory(path: bytes) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
