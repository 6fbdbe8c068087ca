"""A real directory as a ``Tree``: a running command's live mount, a working copy, a FUSE mount.

A command may work in it at the same time, and is not trusted: every path is opened beneath the directory, one
descriptor at a time, and no system call here follows a symbolic link.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import name as last
from mudroom.core.tree.path import parent, relpath
from mudroom.stage import disk
from mudroom.stage.beneath import O_PATH, directory, handle, look, open_beneath
from mudroom.stage.buffer.content import read_whole
from mudroom.stage.buffer.files import Draft, check_file, os_error, refusal
from mudroom.stage.source import DirectorySource, is_absence
from mudroom.typing import BinaryIO

_numbers = itertools.count(1)


class PlainTree:
    """``root``: the directory's descriptor, O_PATH or not; the caller closes it.

    A file is written in its directory as ``.mudroom-<pid>-<number>`` and renamed to its path. So it is never visible
    incomplete, gets a new inode, and loses the replaced file's hard links and extended attributes.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._source = DirectorySource(root)

    def look(self, path: bytes) -> Entry | None:
        return self._source.look(relpath(path) if path else path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        return self._source.names(relpath(path) if path else path)

    def open(self, path: bytes) -> int:
        path = relpath(path)
        try:
            descriptor = self._source.open(path)
        except OSError as error:
            if is_absence(error) or error.errno == errno.ENXIO:
                raise refusal(self.look, path) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise refusal(self.look, path)
        return descriptor

    def read(self, path: bytes) -> bytes:
        return read_whole(self.open(path))

    def readable(self, path: bytes) -> BinaryIO:
        return os.fdopen(self.open(path), "rb")

    def write(self, path: bytes, content: bytes, mode: int | None = None) -> None:
        with self.create(path, mode) as draft:
            draft.write(content)

    def create(self, path: bytes, mode: int | None = None, *, exclusive: bool = False) -> Draft:
        path = relpath(path)
        above = self._open_above(path)
        with ClosedOnError(above):
            check_file(look(above, last(path)), path, exclusive)
            beside = _ReplacementFile(above, path, mode, exclusive)
        return Draft(beside.stream, beside.commit, beside.abandon)

    def mkdir(self, path: bytes, mode: int = 0o755) -> None:
        with self._at(relpath(path)) as (above, name):
            disk.mkdir(above, name, 0o700)
            _chmod(above, name, mode)

    def symlink(self, path: bytes, target: bytes) -> None:
        with self._at(relpath(path)) as (above, name):
            disk.symlink(above, name, target)

    def unlink(self, path: bytes) -> None:
        with self._at(relpath(path)) as (above, name):
            disk.unlink(above, name)

    def rmdir(self, path: bytes) -> None:
        with self._at(relpath(path)) as (above, name):
            disk.rmdir(above, name)

    def remove(self, path: bytes) -> None:
        """Remove an entry with all its contents. If it fails, part of a directory may be gone."""
        path = relpath(path)
        with self._at(path) as (above, name):
            entry = look(above, name)
            if entry is None:
                raise os_error(errno.ENOENT, path)
            if entry.kind != "directory":
                disk.unlink(above, name)
                return
        pending: list[bytes] = [path]
        while pending:  # without recursion: a tree can be deeper than the interpreter's stack
            below = self._unlink_files(pending[-1])
            pending += below
            if not below:
                self.rmdir(pending.pop())

    def _unlink_files(self, path: bytes) -> list[bytes]:
        """Return the directory's subdirectories, which stay."""
        below = []
        with directory(self._root, path) as opened:
            for name, is_directory in disk.children(opened):
                if is_directory:
                    below.append(path + b"/" + name)
                else:
                    disk.unlink(opened, name)
        return below

    def rename(self, old: bytes, new: bytes) -> None:
        """Rename an entry. An overlay mount cannot rename a lower layer's directory (EXDEV); its contents are then
        moved one by one.

        If that fails half-way, no file is lost: the moved ones are at the new path, the rest at the old one.
        """
        old, new = relpath(old), relpath(new)
        entry = self.look(old)
        try:
            self._rename(old, new)
        except OSError as error:
            if error.errno != errno.EXDEV or entry is None or entry.kind != "directory":
                raise
            if self.look(new) is not None:
                self.rmdir(new)
            self._move_parts(old, new, entry)

    def _rename(self, old: bytes, new: bytes) -> None:
        with self._at(old) as (source, name), self._at(new) as (target, to):
            try:
                disk.rename(source, name, target, to)
            except FileNotFoundError:
                raise os_error(errno.ENOENT, old) from None

    def _move_parts(self, old: bytes, new: bytes, entry: Entry) -> None:
        pending, moved = [(old, new, entry)], []
        while pending:
            source, target, entry = pending.pop()
            self.mkdir(target, 0o700)
            moved.append((source, target, entry.mode))
            for name, below in self.names(source).items():
                pair = source + b"/" + name, target + b"/" + name
                if below.kind == "directory":
                    pending.append((*pair, below))
                else:
                    self._rename(*pair)
        for source, target, mode in reversed(moved):
            self.rmdir(source)
            self.chmod(target, mode)

    def chmod(self, path: bytes, mode: int) -> None:
        path = relpath(path)
        with self._at(path) as (above, name):
            _chmod(above, name, mode)

    def utime(self, path: bytes, mtime: int) -> None:
        with self._at(relpath(path)) as (above, name), _handle(above, name) as handle:
            os.utime(handle, ns=(mtime, mtime))

    def _open_above(self, path: bytes) -> int:
        try:
            return open_beneath(self._root, parent(path), os.O_RDONLY | disk.O_DIRECTORY)
        except OSError as error:
            if is_absence(error):
                raise refusal(self.look, path) from None
            raise

    @contextmanager
    def _at(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield a descriptor for the parent directory of ``path``, and the name in it. Errors name the whole path."""
        above = self._open_above(path)
        try:
            yield above, last(path)
        except OSError as error:
            if error.filename is None or isinstance(error.filename, bytes):  # else the error names the path already
                error.filename, error.filename2 = os.fsdecode(path), None
            raise
        finally:
            os.close(above)


class _ReplacementFile:
    """A file that is written in its directory under a temporary name. Owns the directory's descriptor."""

    def __init__(self, above: int, path: bytes, mode: int | None, exclusive: bool) -> None:
        self._above, self._path, self._mode, self._exclusive = above, path, mode, exclusive
        descriptor, self._name = _temporary(above)
        self.stream = io.FileIO(descriptor, "r+")

    def commit(self) -> None:
        place = last(self._path)
        existing = look(self._above, place)
        check_file(existing, self._path, self._exclusive)
        mode = self._mode if self._mode is not None else existing.mode if existing is not None else 0o644
        disk.set_mode_of(self.stream.fileno(), mode)
        self.stream.close()
        if self._exclusive:  # link(2) fails if the path exists meanwhile
            disk.link(self._above, self._name, self._above, place)
            disk.unlink(self._above, self._name)
        else:
            disk.rename(self._above, self._name, self._above, place)
        os.close(self._above)

    def abandon(self) -> None:
        self.stream.close()
        try:
            disk.unlink(self._above, self._name)
        except FileNotFoundError:
            pass  # another process in the directory removed it already
        finally:
            os.close(self._above)


def _temporary(above: int) -> tuple[int, bytes]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
    while True:
        name = b".mudroom-%d-%d" % (os.getpid(), next(_numbers))
        try:
            return disk.open_at(above, name, flags, 0o600), name
        except FileExistsError:
            continue  # left by a crashed process with the same pid


@contextmanager
def _handle(above: int, name: bytes) -> Iterator[int | bytes]:
    """Yield a handle for the file at ``name``, valid even if the file is renamed. Raise ELOOP for a symbolic link."""
    with Descriptor(open_beneath(above, name, O_PATH)) as descriptor:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        yield handle(descriptor)


def _chmod(above: int, name: bytes, mode: int) -> None:
    with _handle(above, name) as handle:
        disk.set_mode_by(handle, mode)
