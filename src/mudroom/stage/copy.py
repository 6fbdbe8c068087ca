"""The copy view: a staged copy of the project, for where a kernel overlay cannot be had.

It is made once per fork and costs what the project weighs, so its size is checked first. The manifest keeps the stamp
of every entry as it was copied; a file whose copy and original both still have their stamps has not changed.
Symbolic links are copied as links and never followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping

from mudroom.core.entry import Entry, same_shape, same_stamp
from mudroom.core.path import is_below
from mudroom.core.spec import Copy
from mudroom.errors import UsageError
from mudroom.stage.beneath import directory, entries, open_beneath, open_file, open_root
from mudroom.stage.view import Difference

FICLONE = 0x40049409  # ioctl_ficlone(2)
DEFAULT_LIMIT = 500 * 1024 * 1024
"""Bytes. More than this is not copied unless the policy raises the limit."""

Manifest = dict[bytes, tuple[Entry, Entry]]
"""Per path: the entry of the original, and of its copy."""


class CopyView:
    kind = "copy"

    def __init__(
        self,
        project: bytes,
        place: bytes,
        *,
        limit: int = DEFAULT_LIMIT,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._project = project
        self._work = place + b"/copy"
        self._limit = limit
        self._progress = progress
        self.manifest: Manifest | None = None
        """None until copied, or loaded by the vault."""

    @property
    def content(self) -> bytes:
        return self._work

    def prepare(self, exclude: frozenset[bytes] = frozenset()) -> None:
        if self.manifest is not None:
            return
        source = open_root(self._project)
        try:
            originals = dict(_everything(source, exclude))
            self._check_size(originals)
            os.mkdir(self._work, 0o700)
            work = open_root(self._work)
            try:
                self.manifest = self._copy(source, work, originals)
            finally:
                os.close(work)
        finally:
            os.close(source)

    def _check_size(self, originals: Mapping[bytes, Entry]) -> None:
        total = sum(entry.size for entry in originals.values())
        if total > self._limit:
            raise UsageError(
                f"the project holds {total / 1e6:.0f} MB, more than the {self._limit / 1e6:.0f} MB that may be copied",
                "raise copy.limit in .mudroom/policy.yaml, or exclude directories with copy.exclude",
            )

    def _copy(self, source: int, work: int, originals: Mapping[bytes, Entry]) -> Manifest:
        manifest: Manifest = {}
        links: dict[tuple[int, int], bytes] = {}
        for number, (path, entry) in enumerate(originals.items()):
            if self._progress:
                self._progress(number, len(originals))
            if copy_entry(source, work, path, entry, links):
                manifest[path] = (entry, entry)
        for path in sorted(manifest, reverse=True):  # directories last: their own modes may forbid writing into them
            if manifest[path][0].kind == "directory":
                os.chmod(path, manifest[path][0].mode, dir_fd=work)
        root = os.fstat(source).st_mode & 0o7777
        os.chmod(b".", root, dir_fd=work)
        copies = dict(_everything(work, frozenset()))
        return {path: (manifest[path][0], copies[path]) for path in manifest}

    def mount(self) -> Copy:
        return Copy(self._work)

    def differences(self, base: int, known: Mapping[bytes, Entry | None]) -> Iterator[Difference]:
        """What was touched in the copy. The base of a path is what was copied, whatever became of it since."""
        assert self.manifest is not None, "prepare comes first"
        work = open_root(self._work)
        try:
            staged = dict(_everything(work, frozenset()))
        finally:
            os.close(work)
        for path, entry in staged.items():
            original, copied = self.manifest.get(path, (None, None))
            if original is None or not (same_stamp(copied, entry) and same_shape(copied, entry)):
                yield Difference(path, original, entry)
        for path, (original, _copied) in self.manifest.items():
            if path not in staged:
                yield Difference(path, original, None)
        del base, known


def _everything(root: int, exclude: frozenset[bytes]) -> Iterator[tuple[bytes, Entry]]:
    """Every entry below an open directory, a directory before what is in it. Other file systems are not entered."""
    device = os.fstat(root).st_dev
    pending = [b""]
    while pending:
        path = pending.pop()
        try:
            with directory(root, path) as opened:
                found = entries(opened)
        except PermissionError:
            continue  # its owner keeps it from us, and so from every command of ours
        for name, entry in found.items():
            at = path + b"/" + name if path else name
            if any(is_below(at, excluded) for excluded in exclude):
                continue
            yield at, entry
            if entry.kind == "directory" and entry.device == device:
                pending.append(at)


def copy_entry(source: int, target: int, path: bytes, entry: Entry, links: dict[tuple[int, int], bytes]) -> bool:
    """Copy one entry to the same path below ``target``; False for what cannot be copied (sockets, devices).

    ``links`` remembers inodes with several names, so that hard links stay hard links.
    """
    key = (entry.device, entry.inode)
    if entry.kind == "file" and entry.links > 1 and key in links:
        os.link(links[key], path, src_dir_fd=target, dst_dir_fd=target, follow_symlinks=False)
        return True
    if entry.kind == "file":
        try:
            copy_file(source, target, path, path, entry)
        except PermissionError:
            return False
        links[key] = path
        return True
    return _copy_special(target, path, entry)


def _copy_special(target: int, path: bytes, entry: Entry) -> bool:
    if entry.kind == "directory":
        os.mkdir(path, 0o700, dir_fd=target)
    elif entry.kind == "symlink":
        os.symlink(entry.target, path, dir_fd=target)
    elif entry.kind == "fifo":
        os.mkfifo(path, entry.mode, dir_fd=target)
    else:
        return False
    return True


def copy_file(source: int, target: int, path: bytes, to: bytes, entry: Entry) -> None:
    """Copy a regular file with its mode, mtime and user xattrs; a new file, never over an existing one."""
    read = open_file(source, path)
    try:
        write = open_beneath(target, to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            copy_content(read, write, entry.size)
            copy_xattrs(read, write)
            os.fchmod(write, entry.mode)
            os.utime(write, ns=(entry.mtime, entry.mtime))
        finally:
            os.close(write)
    finally:
        os.close(read)


def copy_content(read: int, write: int, size: int) -> None:
    """reflink, else copy_file_range by extents (holes stay holes), else read and write."""
    try:
        fcntl.ioctl(write, FICLONE, read)
        return
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.EPERM, errno.ENOSYS):
            raise
    position = 0
    while position < size:
        try:
            position = os.lseek(read, position, os.SEEK_DATA)
            end = os.lseek(read, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # nothing but a hole is left
        _copy_range(read, write, position, end)
        position = end
    os.ftruncate(write, size)


def _copy_range(read: int, write: int, start: int, end: int) -> None:
    while start < end:
        try:
            done = os.copy_file_range(read, write, end - start, start, start)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                raise
            done = os.pwrite(write, os.pread(read, min(end - start, 1 << 20), start), start)
        if not done:
            return  # the file got shorter meanwhile
        start += done


def copy_xattrs(read: int, write: int) -> None:
    try:
        names = os.listxattr(read)
    except OSError:
        return  # the file system has none
    for name in names:
        if name.startswith("user.") and not name.startswith("user.overlay."):
            os.setxattr(write, name, os.getxattr(read, name))
