"""A layer: changes over what lies below, as a directory in the format of an overlayfs upper directory.

Source of every format fact here: Documentation/filesystems/overlayfs.rst. In a layer

* a character device 0:0 is a whiteout (the name is gone), as is an empty file with the xattr
  ``user.overlay.whiteout`` in a directory marked ``x``;
* a directory with the xattr ``user.overlay.opaque`` = ``y`` hides everything below it;
* anything else replaces, or merges with (two directories), what lies below.

Any user may make a whiteout: mknod(2) asks for CAP_MKNOD for every device but 0:0 (fs/namei.c, vfs_mknod, since 5.8).
But not on an overlay, which keeps them for itself (fs/overlayfs/dir.c, ovl_mknod: EPERM), and an overlay is what a
container has for its disk: there the second form is written. No kernel gets to see it: an overlay is no upper layer of
another one, so such a fork is a copy.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ancestors
from mudroom.stage import xattr
from mudroom.stage.beneath import directory, entries, look, look_beneath, open_file, open_root
from mudroom.stage.copy import copy_content, copy_xattrs
from mudroom.stage.layers.closed_directory import LoosenedDirectories, through
from mudroom.stage.source import Source, is_absence

OPAQUE, WHITEOUT = "user.overlay.opaque", "user.overlay.whiteout"


class LayerListing(NamedTuple):
    """One directory of a layer."""

    entries: dict[bytes, Entry]
    gone: frozenset[bytes]
    """Names that are whited out; they are not in ``entries``."""
    opaque: bool


def read_directory(layer: int, path: bytes) -> LayerListing | None:
    """What the layer says of a directory; None if it says nothing."""
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
    """The same of an open directory. ``may_be_opaque``: False for the root of a layer, which never is."""
    found = entries(opened)
    mark = _xattr(opened, OPAQUE)
    gone = {name for name, entry in found.items() if entry.kind == "device"}
    if mark == b"x":
        gone |= {name for name, entry in found.items() if _is_marked(opened, name, entry)}
    for name in gone:
        del found[name]
    return LayerListing(found, frozenset(gone), mark == b"y" and may_be_opaque)


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
    """Where there is no path of a descriptor."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
    try:
        return bool(xattr.get(descriptor, WHITEOUT))
    finally:
        os.close(descriptor)


def _xattr(opened: int, name: str) -> bytes:
    try:
        return xattr.get(opened, name)
    except OSError:
        return b""


def is_whiteout(layer: int, path: bytes, entry: Entry) -> bool:
    """Whether what the layer has at a path says that the name is gone."""
    if entry.kind != "file" or entry.size:
        return entry.kind == "device"
    above, _slash, name = path.rpartition(b"/")

    def marked(layer: int, above: bytes) -> bool:
        with directory(layer, above) as opened:
            return _xattr(opened, OPAQUE) == b"x" and _is_marked(opened, name, entry)

    return through(layer, above, marked)


def make_whiteout(above: int, name: bytes) -> None:
    """In an open directory of a layer, in which there is no such name. Raises OSError as the disk does."""
    try:
        os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=above)
        return
    except PermissionError:
        mark = _xattr(above, OPAQUE)
    if mark == b"y":
        return  # nothing shows through
    if mark != b"x":
        xattr.put(above, OPAQUE, b"x")
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=above)
    try:
        xattr.put(descriptor, WHITEOUT, b"y")
    except BaseException:
        os.unlink(name, dir_fd=above)  # as it is, it would be an empty file
        raise
    finally:
        os.close(descriptor)


def open_staged(layer: int, path: bytes) -> int:
    """A staged file for reading, even if a command left it, or a directory on the way, closed to its owner."""
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
            os.chmod(name, staged.mode | 0o400, dir_fd=above)
            try:
                return open_file(above, name)
            finally:
                os.chmod(name, staged.mode, dir_fd=above)


@contextmanager
def loosened(root: int) -> Iterator[Callable[[bytes, Entry], None]]:
    """Gives a function that makes a directory of ours enterable whatever mode the command gave it.

    The modes are put back at the end of the block; the entries looked at before keep telling the real ones.
    """
    changed: list[tuple[bytes, int]] = []

    def enter(path: bytes, entry: Entry) -> None:
        if entry.mode & 0o700 != 0o700 and os.geteuid() == entry.uid != 0:
            os.chmod(path, entry.mode | 0o700, dir_fd=root)
            changed.append((path, entry.mode))

    try:
        yield enter
    finally:
        for path, mode in reversed(changed):
            os.chmod(path, mode, dir_fd=root)


class LayerWriter:
    """Writes into a layer that no mount is using. What it writes over one path replaces all the layer had there.

    ``lower`` is what lies below the layer: the directories on the way to a path get the modes that it shows. ``finish``
    it in the end.
    Raises NotADirectoryError or FileNotFoundError if view and path do not fit, OSError as the disk does.
    """

    def __init__(self, layer: int, lower: Source) -> None:
        self._layer, self._lower = layer, lower
        self._ready: set[bytes] = set()
        self._loose = LoosenedDirectories(layer)

    def finish(self) -> None:
        """Directories that are closed to their owner get their modes. To be called whatever has failed before."""
        self._loose.restore()

    def file(self, path: bytes, source: int, *, mode: int, mtime: int | None = None, xattrs: bool = False) -> None:
        """A regular file with the content of an open one. ``xattrs``: with its ``user.`` attributes, too."""
        with self._new_file(path, mode, mtime) as write:
            copy_content(source, write, os.fstat(source).st_size)
            if xattrs:
                copy_xattrs(source, write)

    def data(self, path: bytes, content: bytes, *, mode: int, mtime: int | None = None) -> None:
        """A regular file with this content."""
        with self._new_file(path, mode, mtime) as write:
            view = memoryview(content)
            while view:
                view = view[os.write(write, view) :]

    @contextmanager
    def _new_file(self, path: bytes, mode: int, mtime: int | None) -> Iterator[int]:
        """Half a file does not stay: nobody would know that it is half."""
        with self._cleared(path) as (above, name):
            write = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=above)
            try:
                yield write
                os.fchmod(write, mode)
                if mtime is not None:
                    os.utime(write, ns=(mtime, mtime))
            except BaseException:
                os.unlink(name, dir_fd=above)
                raise
            finally:
                os.close(write)

    def link(self, path: bytes, other: bytes) -> None:
        """Another name of a file that was written to the layer before."""
        with self._cleared(path) as (above, name):
            os.link(other, name, src_dir_fd=self._layer, dst_dir_fd=above, follow_symlinks=False)

    def symlink(self, path: bytes, target: bytes) -> None:
        with self._cleared(path) as (above, name):
            os.symlink(target, name, dir_fd=above)

    def fifo(self, path: bytes, mode: int) -> None:
        with self._cleared(path) as (above, name):
            os.mkfifo(name, mode, dir_fd=above)
            os.chmod(name, mode, dir_fd=above)

    def whiteout(self, path: bytes) -> None:
        """The name is gone. Nothing is written if nothing lies below."""
        with self._cleared(path) as (above, name):
            if self._lower.look(path) is not None:
                make_whiteout(above, name)

    def directory(self, path: bytes, mode: int) -> None:
        """A directory that shows what lies below it. One that is there already gets the mode."""
        with self._above(path) as (above, name):
            found = look(above, name)
            if found is None or found.kind != "directory":
                self._remove(path)
                os.mkdir(name, 0o700, dir_fd=above)
                if found is not None:  # it stands on what was gone, or something else: nothing below shows through
                    self._make_opaque(path)
        self._loose.set_mode(path, mode)

    def new_directory(self, path: bytes, mode: int) -> None:
        """An empty directory, whatever lies below."""
        with self._cleared(path) as (above, name):
            os.mkdir(name, 0o700, dir_fd=above)
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
            found = look(opened, name)
            remove_at(opened, name)
        if found is not None and found.kind == "directory":
            self._ready = {ready for ready in self._ready if not ready.startswith(path + b"/") and ready != path}
            self._loose.forget(path)

    def _scaffold(self, path: bytes) -> None:
        """The directories above ``path``, with the modes they have in the view."""
        for above in ancestors(path):
            if above in self._ready:
                continue
            here = look_beneath(self._layer, above)
            if here is None:
                below = self._lower.look(above)
                if below is None or below.kind != "directory":
                    raise (FileNotFoundError if below is None else NotADirectoryError)(
                        2 if below is None else 20, above
                    )
                os.mkdir(above, 0o700, dir_fd=self._layer)
                self._loose.set_mode(above, below.mode)
            elif here.kind != "directory":
                raise NotADirectoryError(20, os.strerror(20), above)
            else:
                self._loose.enter(above)
            self._ready.add(above)


def remove_tree(path: bytes) -> None:
    """rm -r for a tree of ours in which directories may have lost their permissions. Never follows a link."""
    parent, _slash, name = path.rpartition(b"/")
    at = open_root(parent)
    try:
        remove_at(at, name)
    finally:
        os.close(at)


def remove_at(at: int, name: bytes) -> None:
    """The same for a name in an open directory; nothing if it is not there."""
    entry = look(at, name)
    if entry is None:
        return
    if entry.kind != "directory":
        os.unlink(name, dir_fd=at)
        return
    if entry.mode & 0o700 != 0o700:
        os.chmod(name, 0o700, dir_fd=at)
    pending = [name]
    while pending:  # depth first without recursion: a tree can be deeper than the interpreter's stack
        path = pending[-1]
        below = _clear_directory(at, path)
        if below:
            pending += below
        else:
            os.rmdir(path, dir_fd=at)
            pending.pop()


def _clear_directory(at: int, path: bytes) -> list[bytes]:
    """Unlink the files of a directory; returns the directories in it, made accessible."""
    below = []
    with directory(at, path) as opened, os.scandir(opened) as scan:
        for item in scan:
            name = os.fsencode(item.name)
            if item.is_dir(follow_symlinks=False):
                os.chmod(name, 0o700, dir_fd=opened)
                below.append(path + b"/" + name)
            else:
                os.unlink(name, dir_fd=opened)
    return below


def private_directories(scratch: bytes) -> tuple[bytes, bytes]:
    """Without a mount namespace, home and /tmp are directories of the fork, fresh for every command."""
    if os.path.isdir(scratch):
        remove_tree(scratch)
    home, tmp = scratch + b"/home", scratch + b"/tmp"
    os.makedirs(home, mode=0o700)
    os.mkdir(tmp, 0o700)
    return home, tmp
