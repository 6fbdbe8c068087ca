"""Copy files and trees: by reflink, else by copy_file_range extent by extent, else by read and write. Reflinks on macOS
and Windows are in ``stage/clone.py``.

Symbolic links are copied as links and never followed. Hard links stay hard links among the copies. Sockets and devices
are not copied.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Collection, Mapping

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry, FileHeld
from mudroom.stage import disk, xattr
from mudroom.stage.beneath import directory, open_beneath, open_file, reach
from mudroom.stage.source import Source
from mudroom.stage.view import is_too_deep

FICLONE = 0x40049409  # ioctl_ficlone(2)
_NOT_HERE = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EXDEV, errno.EINVAL, errno.EPERM, errno.ENOSYS)
"""Errors from a file system that cannot copy in the kernel. EOPNOTSUPP and ENOTSUP are the same number on Linux but
differ on macOS, whose file systems return the latter (clonefile(2), renameatx_np(2))."""
_NOWHERE = 1 << 63
_NO_HOLES = (errno.EINVAL, errno.ENOTTY, errno.ENOTSUP)


def clone(
    source: Source,
    target: int,
    items: Mapping[bytes, Entry],
    progress: Callable[[int, int], None] | None = None,
    held: list[bytes] | None = None,
    present: Collection[bytes] = (),
) -> set[bytes]:
    """Copy ``items`` from a source, a directory before its contents, into a directory in which their paths are free.
    Return the copied paths: all but sockets, devices, unreadable files, and everything in a directory that was not
    copied.

    ``held`` receives the paths that were not copied because another program holds the file open; if it is None, such a
    file raises FileHeld. ``present``: paths in the target that count as copied, also in the result.
    """
    links: dict[tuple[int, int], bytes] = {}
    copied: set[bytes] = set(present)
    for number, (path, entry) in enumerate(items.items()):
        if progress and number % 64 == 0:
            progress(number, len(items))
        above = path.rpartition(b"/")[0]
        try:
            if (not above or above in copied) and _clone_entry(source, target, path, entry, links):
                copied.add(path)
        except FileHeld:
            if held is None:
                raise
            held.append(path)
    new = [path for path in items if path in copied and items[path].kind == "directory"]
    for path in sorted(new, reverse=True):  # directories last: their own modes may forbid writing into them
        _copy_lists(source, path, target)
        with reach(target, path) as (at, rest):
            disk.set_mode(at, rest, items[path].mode)
    return copied


def _copy_lists(source: Source, path: bytes, target: int) -> None:
    """Copy a directory's access control lists, if the user may read the directory. Set the mode afterwards."""
    if sys.platform != "linux":
        return
    try:
        opened = source.open(path)
    except (PermissionError, FileNotFoundError):
        return
    with Descriptor(opened):
        if lists := xattr.lists(opened):
            with directory(target, path) as at:
                xattr.give_lists(at, lists)


def _clone_entry(source: Source, target: int, path: bytes, entry: Entry, links: dict[tuple[int, int], bytes]) -> bool:
    if entry.kind != "file":
        return _copy_special(target, path, entry)
    key = (entry.device, entry.inode)
    if entry.links > 1 and key in links:
        link(target, links[key], target, path)
        return True
    try:
        read = source.open(path)
    except (PermissionError, FileNotFoundError):
        return False  # unreadable for this user, so also for every command; or just deleted
    try:
        copy_open_file(read, target, path, entry)
    except FileHeld:  # the file was opened, but a part of it is locked: remove the incomplete copy
        with reach(target, path) as (at, rest):
            disk.unlink(at, rest)
        raise
    finally:
        os.close(read)
    links[key] = path
    return True


def listed(
    source: Source,
    leave_out: Callable[[bytes, Entry], bool] | None = None,
    *,
    merged: bool = False,
    held: list[bytes] | None = None,
    deep: set[bytes] | None = None,
    devices: Collection[int] = (),
) -> dict[bytes, Entry]:
    """Return every entry in a source, a directory before its contents.

    A mount point of another file system is listed, and entered only if its device is among ``devices``. ``merged``: the
    source is a snapshot with layers over it, whose entries may have several devices; no file system is mounted in it.
    ``held`` receives the directories that another program holds open, as in ``clone``; they are left out. So are
    directories that lie too deep (``stage/view.py``): ``deep`` receives the directories that they are in.
    """
    root = source.look(b"")
    devices = {root.device if root is not None else 0, *devices}
    listing: dict[bytes, Entry] = {}
    pending = [b""]
    while pending:
        path = pending.pop()
        try:
            names = source.names(path)
        except PermissionError:
            continue
        except FileHeld:
            if held is None or not path:
                raise
            held.append(path)
            del listing[path]
            continue
        for name, entry in names.items():
            entry_path = path + b"/" + name if path else name
            if leave_out is not None and leave_out(entry_path, entry):
                continue
            if entry.kind == "directory" and is_too_deep(entry_path):
                if deep is not None:
                    deep.add(path)
                continue
            listing[entry_path] = entry
            if entry.kind == "directory" and (merged or entry.device in devices):
                pending.append(entry_path)
    return listing


def copy_entry(source: int, target: int, path: bytes, entry: Entry, links: dict[tuple[int, int], bytes]) -> bool:
    """Copy one entry to the same path below ``target``. Return False if it cannot be copied (socket, device, unreadable
    file).

    ``links`` records inodes with several names, so that hard links stay hard links.
    """
    key = (entry.device, entry.inode)
    if entry.kind == "file" and entry.links > 1 and key in links:
        link(target, links[key], target, path)
        return True
    if entry.kind == "file":
        try:
            copy_file(source, target, path, path, entry)
        except PermissionError:
            return False
        links[key] = path
        return True
    return _copy_special(target, path, entry)


def link(source: int, path: bytes, target: int, to: bytes) -> None:
    """Add the name ``to`` below ``target`` for the file at ``path`` below ``source``. Raise OSError as link(2) does."""
    with reach(source, path) as (at, rest), reach(target, to) as (into, name):
        disk.link(at, rest, into, name)


def _copy_special(target: int, path: bytes, entry: Entry) -> bool:
    with reach(target, path) as (at, rest):
        if entry.kind == "directory":
            disk.mkdir(at, rest, 0o700)
        elif entry.kind == "symlink":
            disk.symlink(at, rest, entry.target)
        elif entry.kind == "fifo":
            disk.mkfifo(at, rest, entry.mode)
        else:
            return False
    return True


def copy_file(source: int, target: int, path: bytes, to: bytes, entry: Entry) -> None:
    """Copy a regular file with its mode, mtime and user xattrs to a new file. Raise FileExistsError if the target
    exists."""
    with Descriptor(open_file(source, path)) as read:
        copy_open_file(read, target, to, entry)


def copy_open_file(read: int, target: int, to: bytes, entry: Entry) -> None:
    """Like ``copy_file``, for a source that is already open."""
    if sys.platform == "darwin" and _cloned_by_name(read, target, to, entry):
        return
    with Descriptor(open_beneath(target, to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)) as write:
        copy_content(read, write, entry.size)
        copy_xattrs(read, write)
        disk.set_mode_of(write, entry.mode)
        disk.set_times_of(write, entry.mtime)


if sys.platform == "darwin":

    def _cloned_by_name(read: int, target: int, to: bytes, entry: Entry) -> bool:
        """Clone to a new file, with mode, times and xattrs: macOS cannot reflink into an open file."""
        from mudroom.stage.clone import clone_file

        above, _slash, last = to.rpartition(b"/")
        with directory(target, above) as opened:
            if not clone_file(read, opened, last):
                return False
            disk.set_mode_and_times(opened, last, entry.mode, entry.mtime)
            return True


def copy_content(read: int, write: int, size: int, *, only_reflink: bool = False) -> bool:
    """Copy by reflink, else by copy_file_range extent by extent (holes stay holes), else by read and write.

    ``only_reflink``: return False instead of copying bytes. Where holes cannot be queried (not Linux, or unsupported by
    the file system), a source that has shrunk raises OSError instead of being padded with zeros.
    """
    if _reflink(read, write):
        return True
    if only_reflink:
        return False
    position = 0
    while position < size:
        extent = _next_data(read, position)
        if extent is None:
            _copy_whole(read, write, position, size)
            return True
        if extent[0] >= size:
            break  # only a hole is left
        end = min(extent[1], size)
        position = _copy_range(read, write, extent[0], end)
        if position < end:
            break  # the file has shrunk
    if position < size:  # otherwise ext4 journals the size before the data: zeros of the full size after a power loss
        os.ftruncate(write, size)
    return True


def _next_data(read: int, position: int) -> tuple[int, int] | None:
    """Return start and end of the data at or after ``position``, ``_NOWHERE`` twice if there is none, or None if the
    file system cannot tell.

    Uses Linux's lseek(2). On macOS, SEEK_DATA in the middle of data returns the *next* data, or ENXIO (gnulib,
    lib/lseek.c): trusting it would skip all data in a file without holes.
    """
    if sys.platform != "linux":
        return None
    try:
        start = os.lseek(read, position, os.SEEK_DATA)
        return start, os.lseek(read, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return _NOWHERE, _NOWHERE
        if error.errno in _NO_HOLES:
            return None
        raise


def _copy_whole(read: int, write: int, position: int, size: int) -> None:
    reached = _copy_range(read, write, position, size)
    if reached < size:
        raise OSError(errno.EIO, f"a file got shorter while it was copied: {reached} of {size} bytes")


def _reflink(read: int, write: int) -> bool:
    """Make both files share their blocks. Return False if the file system cannot."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.ioctl(write, FICLONE, read)
        return True
    except OSError as error:
        if error.errno not in (*_NOT_HERE, errno.ENOTTY):
            raise
        return False


def _copy_range(read: int, write: int, start: int, end: int) -> int:
    """Copy a range. Return the position at which the copy ended: less than ``end`` if the source has shrunk."""
    while start < end:
        try:
            done = _in_kernel(read, write, start, end)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            done = disk.pwrite(write, disk.pread(read, min(end - start, 1 << 20), start), start)
        if not done:
            break  # the file has shrunk meanwhile
        start += done
    return start


def _in_kernel(read: int, write: int, start: int, end: int) -> int:
    """Raise OSError (ENOSYS) where copy_file_range(2) is missing: macOS, Windows."""
    if not hasattr(os, "copy_file_range"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.copy_file_range(read, write, end - start, start, start)


def copy_xattrs(read: int, write: int) -> None:
    """Copy a file's ``user.`` attributes and its access control list. Set the mode afterwards."""
    for name, value in xattr.user(read).items():
        xattr.put(write, name, value)
    xattr.give_lists(write, xattr.lists(read))
