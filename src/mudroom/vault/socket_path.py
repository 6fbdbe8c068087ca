"""Paths of unix sockets in a vault."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.stage import disk


@contextmanager
def short_path(path: bytes) -> Iterator[bytes]:
    """Yield a short path to the same file: the path of a unix socket has at most 108 bytes (unix(7))."""
    above, _slash, name = path.rpartition(b"/")
    directory = disk.open_path(above, os.O_PATH | disk.O_DIRECTORY | disk.O_CLOEXEC)
    try:
        yield b"/proc/self/fd/%d/%s" % (directory, name)
    finally:
        os.close(directory)
