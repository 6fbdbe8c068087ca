"""Open and list entries below a directory, by descriptor.

Every path that mudroom opens in a project or a fork goes through here. A symbolic link in the middle of a path, put
there by an agent or by accident, is an error and is never followed; so is any path that would leave the directory.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.core.system.closing import Closing, Descriptor
from mudroom.core.tree.entry import Entry, from_stat
from mudroom.stage import disk
from mudroom.stage.disk import O_PATH as O_PATH
from mudroom.stage.disk import handle as handle
from mudroom.stage.disk import mount_of as mount_of
from mudroom.stage.disk import open_beneath as open_beneath
from mudroom.stage.disk import open_layer as open_layer
from mudroom.stage.disk import open_root as open_root
from mudroom.stage.disk import reach as reach

_numbers = itertools.count()


@contextmanager
def directory(root: int, path: bytes) -> Iterator[int]:
    """Yield a descriptor for the directory at ``path`` below ``root``; it is closed when the block ends."""
    with Descriptor(open_beneath(root, path, os.O_RDONLY | disk.O_DIRECTORY)) as descriptor:
        yield descriptor


def look(parent: int, name: bytes) -> Entry | None:
    """Return the entry ``name`` in the open directory ``parent``, or None if there is no such name."""
    while True:
        try:
            stat = disk.stat_at(parent, name)
            target = disk.readlink(parent, name) if stat.st_mode & 0o170000 == 0o120000 else b""
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            continue  # the link was replaced between stat and readlink
        return from_stat(stat, target)  # type: ignore[arg-type]


def look_beneath(root: int, path: bytes) -> Entry | None:
    """Return the entry at ``path`` below ``root``, or None if the entry or a directory on the way is missing.

    A symbolic link or a file where a directory should be counts as missing.
    """
    above, _slash, name = path.rpartition(b"/")
    try:
        with directory(root, above) as parent:
            return look(parent, name)
    except OSError as error:
        if is_absence(error):
            return None
        raise


def is_absence(error: OSError) -> bool:
    """Return whether an error from open(2) means that the path does not exist. ELOOP: a symbolic link on the way."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class LastDirectory(Closing):
    """Opens directories below ``root`` and keeps the last one open: paths in walking order mostly share their
    directory.

    The descriptor belongs to the directory that was at the path when it was entered, whatever has been renamed since.
    So use this only where results are checked again afterwards, and for trees in which only mudroom renames. To change
    the user's files, open their directory anew. The owner closes it; one thread uses it at a time.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._path: bytes | None = None
        self._opened = -1

    def enter(self, path: bytes) -> int:
        """Return the directory's descriptor, which stays open until another directory is entered. Raise OSError as
        ``open_beneath`` does."""
        if path != self._path:
            self.close()
            self._opened = open_beneath(self.root, path, os.O_RDONLY | disk.O_DIRECTORY)
            self._path = path
        return self._opened

    def close(self) -> None:
        """Close the directory. It may be entered again."""
        if self._path is not None:
            os.close(self._opened)
            self._path = None

    def look(self, path: bytes) -> Entry | None:
        """Like ``look_beneath``."""
        above, _slash, name = path.rpartition(b"/")
        try:
            return look(self.enter(above), name)
        except OSError as error:
            if is_absence(error):
                return None
            raise

    def look_if_open(self, path: bytes) -> Entry | None:
        """Like ``look``; also None if the directory is closed to this user."""
        try:
            return self.look(path)
        except PermissionError:
            return None

    def open_file(self, path: bytes) -> int:
        """Like ``open_file``."""
        above, _slash, name = path.rpartition(b"/")
        flags = os.O_RDONLY | disk.O_NONBLOCK | disk.O_NOFOLLOW | disk.O_CLOEXEC
        return disk.open_at(self.enter(above), name, flags)


def entries(directory_fd: int) -> dict[bytes, Entry]:
    """Return an open directory's entries by name."""
    by_name = dict(disk.stats(directory_fd, from_stat))  # type: ignore[arg-type]
    for name in [name for name, entry in by_name.items() if entry.kind == "symlink"]:
        entry = look(directory_fd, name)
        if entry is not None:
            by_name[name] = entry
        else:
            del by_name[name]
    return by_name


def nameless(place: bytes) -> int:
    """Return a descriptor for a new unnamed file, for reading and writing: a memfd, or, where memfd_create(2) is
    missing, a file in the directory ``place`` that is unlinked at once."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mudroom", os.MFD_CLOEXEC)
    name = place + b"/.nameless-%d-%d" % (os.getpid(), next(_numbers))
    descriptor = disk.open_path(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600)
    os.unlink(name)
    return descriptor


def open_file(root: int, path: bytes) -> int:
    """Return a descriptor for reading a regular file. O_NONBLOCK: a FIFO in its place must not block the caller."""
    return open_beneath(root, path, os.O_RDONLY | disk.O_NONBLOCK)


def read_file(root: int, path: bytes, limit: int) -> bytes | None:
    """Return a file's content, or None if it has more than ``limit`` bytes."""
    with Descriptor(open_file(root, path)) as descriptor:
        if os.fstat(descriptor).st_size > limit:
            return None
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            data = stream.read(limit + 1)
        return data if len(data) <= limit else None
