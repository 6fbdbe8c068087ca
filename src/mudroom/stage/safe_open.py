"""Open mudroom's own files that lie where a container may write: beside a layer's tree.

An overlay's upper and work directories must be on one mount, so a container gets its layer's whole directory, and a
command that escapes its view there can write to all of it. Every function here opens a file of the expected type or
raises: no link is followed, no open blocks, and a directory is created only under a name that did not exist.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk
from mudroom.stage.beneath import open_root
from mudroom.typing import TypeVar

_Rows = TypeVar("_Rows")

_HINT = "a command has put it there; run `mudroom discard` to drop the fork (the project is unchanged)"

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | disk.O_NOFOLLOW | disk.O_CLOEXEC


def _planted(path: bytes, kind: str) -> MudroomError:
    return MudroomError(f"{show(path)} is not a {kind} that mudroom made", _HINT)


def open_directory(path: bytes) -> int:
    """Return a descriptor. Raise FileNotFoundError, or MudroomError if the path is a link or a file."""
    try:
        return open_root(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _planted(path, "directory") from error
        raise


def open_regular(path: bytes, flags: int = os.O_RDONLY, *, at: int | None = None) -> int:
    """Return a descriptor for the regular file. ``at``: the open directory in which ``path`` is a name. Raise
    FileNotFoundError, or MudroomError if the path is a link or not a regular file."""
    try:
        descriptor = disk.open_at(at, path, flags | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _planted(path, "file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _planted(path, "file")
    return descriptor


def read(path: bytes) -> bytes:
    """Return the whole content. Raise as ``open_regular`` does."""
    with os.fdopen(open_regular(path), "rb", buffering=0) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error


def read_rows(path: bytes, kind: type[_Rows], hint: str) -> _Rows:
    """Return a table in MessagePack; empty if the file is missing. Raise MudroomError with the hint if it is damaged,
    and as ``open_regular`` does."""
    try:
        data = read(path)
    except FileNotFoundError:
        return kind()
    import msgspec

    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise MudroomError(f"{os.fsdecode(path)} is damaged: {error}", hint) from error


def make_directory(path: bytes) -> int:
    """Create the directory if it is missing, and return a descriptor. Raise as ``open_directory`` does."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    return open_directory(path)


def replace(path: bytes, content: bytes, beside: bytes = b"", *, durable: bool = True) -> None:
    """Replace a file in a trusted directory atomically. ``durable``: after a power loss it is the old one or the new
    one, whole. ``beside``: the file that is written first; unique where two processes may write at once."""
    new = beside or path + b".new"
    try:
        with open(disk.open_path(new, _WRITE, 0o600), "wb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        disk.rename_path(new, path)
    except BaseException:
        if beside:
            with suppress(FileNotFoundError):
                os.unlink(beside)
        raise
