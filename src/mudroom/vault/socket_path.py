"""Paths of unix sockets in a vault: the path of a unix socket has at most 108 bytes (unix(7)), 104 on macOS
(sys/un.h)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.stage import disk

_LONGEST = 103
"""Bytes of sun_path on macOS but for the NUL at its end."""


@contextmanager
def short_path(path: bytes) -> Iterator[bytes]:
    """Yield a short path to the same file. Its directory exists."""
    if sys.platform != "linux":
        with linked_path(path) as short:
            yield short
        return
    above, _slash, name = path.rpartition(b"/")
    directory = disk.open_path(above, os.O_PATH | disk.O_DIRECTORY | disk.O_CLOEXEC)
    try:
        yield b"/proc/self/fd/%d/%s" % (directory, name)
    finally:
        os.close(directory)


@contextmanager
def linked_path(path: bytes) -> Iterator[bytes]:
    """As ``short_path``, by a symbolic link in a new directory of this user alone where the path is long: macOS has no
    paths of descriptors below which names are looked up (fd(4))."""
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
