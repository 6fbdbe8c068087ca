"""Files of mudroom's own that lie where a container may write: beside the tree of a layer.

An overlay's upper and work directories have to be on one mount, so whoever is loose in a container has the whole
directory of the layer that it was made for. What is opened there is what it seems to be, or it is an error: no link is
followed, nothing is waited for, and what is written has a name that was not there before.
"""

from __future__ import annotations

import errno
import os
import stat

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage.beneath import open_root

_HINT = "a command has put it there; mudroom discard drops the fork, the project is as it was"


def _planted(path: bytes, kind: str) -> MudroomError:
    return MudroomError(f"{show(path)} is no {kind} of mudroom's", _HINT)


def open_directory(path: bytes) -> int:
    """Raises FileNotFoundError; MudroomError if it is a link or a file."""
    try:
        return open_root(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _planted(path, "directory") from error
        raise


def open_regular(path: bytes, flags: int = os.O_RDONLY, *, at: int | None = None) -> int:
    """``at``: the open directory in which ``path`` is a name. Raises FileNotFoundError; MudroomError if it is a link,
    or no file."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _planted(path, "file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _planted(path, "file")
    return descriptor


def read(path: bytes) -> bytes:
    """The whole file. Raises as ``open_regular`` does."""
    with os.fdopen(open_regular(path), "rb") as stream:
        return stream.read()


def make_directory(path: bytes) -> int:
    """Opened, and made if it was not there. Raises as ``open_directory`` does."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    return open_directory(path)
