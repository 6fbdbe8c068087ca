"""Unix sockets in a vault whose paths may be too long: at most 108 bytes (unix(7)), 104 on macOS (sys/un.h)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.core.system.closing import Descriptor
from mudroom.stage import disk

_LONGEST = 103
"""Bytes of sun_path on macOS without its final NUL."""


@contextmanager
def short_path(path: bytes) -> Iterator[bytes]:
    """Yield a short path to the same file. Its directory must exist."""
    if sys.platform != "linux":
        with linked_path(path) as short:
            yield short
        return
    above, _slash, name = path.rpartition(b"/")
    with Descriptor(disk.open_path(above, os.O_PATH | disk.O_DIRECTORY | disk.O_CLOEXEC)) as directory:
        yield b"/proc/self/fd/%d/%s" % (directory, name)


@contextmanager
def linked_path(path: bytes) -> Iterator[bytes]:
    """Yield a short path as ``short_path`` does, through a symbolic link in a new private directory if the path is
    long. For macOS, which cannot look up names below a descriptor's path (fd(4))."""
    if len(path) <= _LONGEST:
        yield path
        return
    import tempfile

    above, _slash, name = path.rpartition(b"/")
    private = tempfile.mkdtemp(prefix=b"mudroom-", dir=b"/tmp")
    try:
        os.symlink(above, private + b"/d")
        yield private + b"/d/" + name
    finally:
        os.unlink(private + b"/d")
        os.rmdir(private)
