"""A layer: changes over the tree below it, as a directory in the format of an overlayfs upper directory.

Source for every format fact here: Documentation/filesystems/overlayfs.rst. In a layer

* a character device 0:0 is a whiteout (the name is deleted), as is an empty file with the xattr
  ``user.overlay.whiteout`` in a directory marked ``x``;
* a directory with the xattr ``user.overlay.opaque`` = ``y`` hides everything below it;
* any other entry replaces the entry below, or merges with it if both are directories.

Any user may create a whiteout: mknod(2) requires CAP_MKNOD for every device but 0:0 (fs/namei.c, vfs_mknod, since 5.8).
The exception is an overlay, which reserves whiteouts for itself (fs/overlayfs/dir.c, ovl_mknod: EPERM). A container's
disk is an overlay, so the second form is written there. No kernel reads that form here: an overlay cannot be the upper
layer of another overlay, so such a fork is a copy.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import parent
from mudroom.stage import disk, xattr
from mudroom.stage.beneath import directory, entries, look, look_beneath, open_file, open_root, reach
from mudroom.stage.layers.closed_directory import LoosenedDirectories, entered, set_mode_beneath, through
from mudroom.stage.source import Source, is_absence
from mudroom.typing import NamedTuple

_LONG = 2_000
"""Bytes in a path in a tree that is being removed: with one more name it fits into one call (PATH_MAX, 4096)."""
OPAQUE, WHITEOUT = "user.overlay.opaque", "user.overlay.whiteout"


class LayerListing(NamedTuple):
    """One directory in a layer."""

    entries: dict[bytes, Entry]
    gone: frozenset[bytes]
    """Names with a whiteout; they are not in ``entries``."""
    opaque: bool


def read_directory(layer: int, path: bytes) -> LayerListing | None:
    """Return the layer's listing of a directory, or None if the layer does not have it."""
    try:
        return through(layer, path, _listing)
    except OSError as error:
        if is_absence(error):
            return None
        raise


def _listing(layer: int, path: bytes) -> LayerListing:
    with directory(layer, path) as opened:
        return listing(opened, path != b"")


def listing(opened: int, may_be_opaque: bool = True) -> LayerListing:
    """Return an open directory's listing. ``may_be_opaque`` is False for a layer's root, which never is."""
    by_name = entries(opened)
    mark = _xattr(opened, OPAQUE)
    gone = {name for name, entry in by_name.items() if entry.kind == "device"}
    if mark == b"x":
        gone |= {name for name, entry in by_name.items() if _is_marked(opened, name, entry)}
    for name in gone:
        del by_name[name]
    return LayerListing(by_name, frozenset(gone), mark == b"y" and may_be_opaque)


def _is_marked(opened: int, name: bytes, entry: Entry) -> bool:
    if entry.kind != "file" or entry.size:
        return False
    try:
        if sys.platform != "linux":
            return _is_marked_open(opened, name)
        os.getxattr(b"/proc/self/fd/%d/%s" % (opened, name), WHITEOUT, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_marked_open(opened: int, name: bytes) -> bool:
    """For systems on which a descriptor has no path."""
    descriptor = disk.open_at(opened, name, os.O_RDONLY | disk.O_NONBLOCK | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    with Descriptor(descriptor):
        return bool(xattr.get(descriptor, WHITEOUT))


def _xattr(opened: int, name: str) -> bytes:
    try:
        return xattr.get(opened, name)
    except OSError:
        return b""


def is_whiteout(layer: int, path: bytes, entry: Entry) -> bool:
    if entry.kind != "file" or entry.size:
        return entry.kind == "device"
    above, _slash, name = path.rpartition(b"/")

    def marked(layer: int, above: bytes) -> bool:
        with directory(layer, above) as opened:
            return _xattr(opened, OPAQUE) == b"x" and _is_marked(opened, name, entry)

    return through(layer, above, marked)


def is_opaque(layer: int, path: bytes) -> bool:
    """Return whether a directory in the layer hides the one below."""

    def marked(layer: int, path: bytes) -> bool:
        with directory(layer, path) as opened:
            return _xattr(opened, OPAQUE) == b"y"

    return through(layer, path, marked)


def make_whiteout(above: int, name: bytes) -> None:
    """Create a whiteout in an open layer directory that lacks the name. Raise OSError as the disk does."""
    try:
        disk.whiteout(above, name)
        return
    except PermissionError:
        mark = _xattr(above, OPAQUE)
    if mark == b"y":
        return  # the tree below is hidden anyway
    if mark != b"x":
        xattr.put(above, OPAQUE, b"x")
    descriptor = disk.open_at(
        above, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600
    )
    try:
        xattr.put(descriptor, WHITEOUT, b"y")
    except BaseException:
        disk.unlink(above, name)  # without the mark it would be an empty file
        raise
    finally:
        os.close(descriptor)


def open_staged(layer: int, path: bytes) -> int:
    """Return a descriptor for reading a staged file, even if a command closed it, or a directory on the way, to its
    owner."""
    return through(layer, path, _open_unreadable)


def _open_unreadable(layer: int, path: bytes) -> int:
    try:
        return open_file(layer, path)
    except PermissionError:
        staged = look_beneath(layer, path)
        if staged is None or staged.kind != "file" or staged.mode & 0o400:
            raise
        with directory(layer, path.rpartition(b"/")[0]) as above:
            name = path.rpartition(b"/")[2]
            disk.set_mode(above, name, staged.mode | 0o400)
            try:
                return open_file(above, name)
            finally:
                disk.set_mode(above, name, staged.mode)


def stamp_now(layer: int, path: bytes) -> None:
    """Give a staged file the present time as its ctime; its other times stay."""
    with Descriptor(open_staged(layer, path)) as opened:
        info = os.fstat(opened)
        os.utime(opened, ns=(info.st_atime_ns, info.st_mtime_ns))


@contextmanager
def loosened(root: int) -> Iterator[Callable[[bytes, Entry], None]]:
    """Yield a function that makes a layer's directory enterable, whatever mode the command gave it.

    The modes are restored when the block ends. Entries that were read before keep the real modes.
    """
    changed: list[tuple[bytes, int]] = []

    def enter(path: bytes, entry: Entry) -> None:
        if entry.mode & 0o700 != 0o700 and disk.user() == entry.uid != 0:
            with reach(root, path) as (at, rest):
                disk.set_mode(at, rest, entry.mode | 0o700)
            changed.append((path, entry.mode))

    try:
        yield enter
    finally:
        for path, mode in reversed(changed):
            with reach(root, path) as (at, rest):
                disk.set_mode(at, rest, mode)


@contextmanager
def new_file(at: int, name: bytes, mode: int, mtime: int | None) -> Iterator[int]:
    """Yield a descriptor for a new file in an open directory. It is removed if the block fails: an incomplete file
    would look complete."""
    write = disk.open_at(at, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600)
    try:
        yield write
        disk.set_mode_of(write, mode)
        if mtime is not None:
            disk.set_times_of(write, mtime)
    except BaseException:
        disk.unlink(at, name)
        raise
    finally:
        os.close(write)


class LayerWriter:
    """Writes into a layer that is not mounted. Writing a path replaces everything that the layer has there.

    ``lower`` is the tree below the layer: directories on the way to a path get the modes that it shows. Call ``finish``
    at the end. Raises NotADirectoryError or FileNotFoundError if a path's parent is not a directory in the view, and
    OSError as the disk does.
    """

    def __init__(self, layer: int, lower: Source, aside: int | None = None) -> None:
        """``aside``: a private directory on the layer's file system. Files are written there, then renamed to their
        paths, so that a reader sees either the old file or the new one."""
        self._layer, self._lower, self._aside = layer, lower, aside
        self._ready: set[bytes] = set()
        self._loose = LoosenedDirectories(layer)

    def finish(self) -> None:
        """Set the modes of directories that are closed to their owner. Call it after a failure, too."""
        self._loose.restore()

    def file(self, path: bytes, source: int, *, mode: int, mtime: int | None = None, xattrs: bool = False) -> None:
        """Write a regular file with an open file's content. ``xattrs``: copy its ``user.`` attributes, too."""
        from mudroom.stage.copy import copy_content, copy_xattrs

        with self._new_file(path, mode, mtime) as write:
            copy_content(source, write, os.fstat(source).st_size)
            if xattrs:
                copy_xattrs(source, write)

    def data(self, path: bytes, content: bytes, *, mode: int, mtime: int | None = None) -> None:
        """Write a regular file with this content."""
        with self._new_file(path, mode, mtime) as write:
            view = memoryview(content)
            while view:
                view = view[os.write(write, view) :]

    @contextmanager
    def _new_file(self, path: bytes, mode: int, mtime: int | None) -> Iterator[int]:
        """Yield a descriptor for a new file, removed if it stays incomplete: it would look like a complete one."""
        if self._aside is not None:
            with self._above(path) as (above, name):
                with new_file(self._aside, b"flush", mode, mtime) as write:
                    yield write
                entry = look(above, name)
                if entry is not None and entry.kind == "directory":
                    self._remove(path)
                disk.rename(self._aside, b"flush", above, name)
            return
        with self._cleared(path) as (above, name), new_file(above, name, mode, mtime) as write:
            yield write

    def link(self, path: bytes, other: bytes) -> None:
        """Add another name for a file that was written to the layer before."""
        with self._cleared(path) as (above, name), reach(self._layer, other) as (at, rest):
            disk.link(at, rest, above, name)

    def symlink(self, path: bytes, target: bytes) -> None:
        with self._cleared(path) as (above, name):
            disk.symlink(above, name, target)

    def fifo(self, path: bytes, mode: int) -> None:
        with self._cleared(path) as (above, name):
            disk.mkfifo(above, name, 0o600)
        set_mode_beneath(self._layer, path, mode)

    def moved(self, path: bytes, source: int) -> None:
        """Move the entry at ``path`` from another layer on the same file system to the same path."""
        above, _slash, name = path.rpartition(b"/")
        with self._cleared(path) as (into, _name), entered(source, above) as opened:
            disk.rename(opened, name, into, name)

    def whiteout(self, path: bytes) -> None:
        """Delete the name. No whiteout is written if the tree below does not have the name."""
        with self._cleared(path) as (above, name):
            if self._lower.look(path) is not None:
                make_whiteout(above, name)

    def directory(self, path: bytes, mode: int) -> None:
        """Create a directory that shows the directory below it, or set the mode of an existing one."""
        with self._above(path) as (above, name):
            entry = look(above, name)
            if entry is None or entry.kind != "directory":
                self._remove(path)
                disk.mkdir(above, name, 0o700)
                if entry is not None and self._lower.look(path) is not None:
                    self._make_opaque(path)  # it replaces a whiteout or another entry: what is below must not show
        self._loose.set_mode(path, mode)

    def new_directory(self, path: bytes, mode: int) -> None:
        """Create an empty directory that hides the tree below."""
        with self._cleared(path) as (above, name):
            disk.mkdir(above, name, 0o700)
            if self._lower.look(path) is not None:
                self._make_opaque(path)
        self._loose.set_mode(path, mode)

    def _make_opaque(self, path: bytes) -> None:
        with directory(self._layer, path) as opened:
            xattr.put(opened, OPAQUE, b"y")

    @contextmanager
    def _above(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        above, _slash, name = path.rpartition(b"/")
        self._scaffold(path)
        with directory(self._layer, above) as opened:
            yield opened, name

    @contextmanager
    def _cleared(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        self._clear(path)
        above, _slash, name = path.rpartition(b"/")
        with directory(self._layer, above) as opened:
            yield opened, name

    def _clear(self, path: bytes) -> None:
        self._scaffold(path)
        self._remove(path)

    def _remove(self, path: bytes) -> None:
        above, _slash, name = path.rpartition(b"/")
        with directory(self._layer, above) as opened:
            entry = look(opened, name)
            remove_at(opened, name)
        if entry is not None and entry.kind == "directory":
            self._ready = {ready for ready in self._ready if not ready.startswith(path + b"/") and ready != path}
            self._loose.forget(path)

    def _scaffold(self, path: bytes) -> None:
        """Create the directories above ``path``, with their modes in the view."""
        missing = []
        above = parent(path)
        while above and above not in self._ready:  # not all ancestors: that is quadratic in the depth
            missing.append(above)
            above = parent(above)
        for above in reversed(missing):
            entry = look_beneath(self._layer, above)
            if entry is None:
                below = self._lower.look(above)
                if below is None or below.kind != "directory":
                    raise (FileNotFoundError if below is None else NotADirectoryError)(
                        2 if below is None else 20, above
                    )
                with reach(self._layer, above) as (at, rest):
                    disk.mkdir(at, rest, 0o700)
                self._loose.set_mode(above, below.mode)
            elif entry.kind != "directory":
                raise NotADirectoryError(20, os.strerror(20), above)
            else:
                self._loose.enter(above)
            self._ready.add(above)


def remove_tree(path: bytes, removed: Callable[[int], None] | None = None) -> None:
    """Remove a tree that belongs to mudroom, even if directories in it have lost their permissions. Never follow a
    link. ``removed`` is called after each directory with the number of entries removed from it."""
    above, _slash, name = path.rpartition(b"/")
    with Descriptor(open_root(above)) as at:
        remove_at(at, name, removed)


def remove_at(at: int, name: bytes, removed: Callable[[int], None] | None = None) -> None:
    """Like ``remove_tree``, for a name in an open directory. A missing name is not an error, nor is one that another
    process removes meanwhile: the launcher removes work directories while a fork may be discarded."""
    entry = look(at, name)
    if entry is None:
        return
    if entry.kind != "directory":
        disk.unlink(at, name)
        return
    if entry.mode & 0o700 != 0o700:
        disk.set_mode(at, name, 0o700)
    pending = [name]
    while pending:  # depth first without recursion: a tree can be deeper than the interpreter's stack
        if len(pending[-1]) > _LONG:
            pending[-1] = _move_up(at, name, pending[-1])
        path = pending[-1]
        try:
            below, count = _clear_directory(at, path)
        except FileNotFoundError:
            pending.pop()
            continue
        if removed is not None:
            removed(count)
        if below:
            pending += below
        else:
            with suppress(FileNotFoundError):
                disk.rmdir(at, path)
            pending.pop()


def _move_up(at: int, top: bytes, path: bytes) -> bytes:
    """Move a directory to the top of the tree that is being removed, and return its new path. Reaching a deep directory
    from the top each time would cost its depth squared."""
    for number in itertools.count():
        new = top + b"/.deep-%d" % number
        try:
            disk.rename(at, path, at, new)
            return new
        except (FileExistsError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
    raise AssertionError


def _clear_directory(at: int, path: bytes) -> tuple[list[bytes], int]:
    """Unlink a directory's files. Return its subdirectories, made accessible, and the number of files."""
    below, count = [], 0
    with directory(at, path) as opened:
        for name, is_directory in disk.children(opened):
            with suppress(FileNotFoundError):
                if is_directory:
                    disk.set_mode(opened, name, 0o700)
                    below.append(path + b"/" + name)
                else:
                    disk.unlink(opened, name)
                    count += 1
    return below, count


def private_directories(scratch: bytes) -> tuple[bytes, bytes]:
    """Create and return the home and /tmp directories for a command without a mount namespace, empty for every
    command."""
    if os.path.isdir(scratch):
        remove_tree(scratch)
    home, tmp = scratch + b"/home", scratch + b"/tmp"
    os.makedirs(home, mode=0o700)
    os.mkdir(tmp, 0o700)
    return home, tmp
