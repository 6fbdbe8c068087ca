"""Moving, copying and comparing whole trees, by descriptor. The parts of an apply that know about directories."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mudroom.core.merge.operations import Op
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.core.tree.path import show
from mudroom.errors import ForkMoved
from mudroom.stage import xattr
from mudroom.stage.beneath import (
    O_PATH,
    directory,
    entries,
    handle,
    look,
    look_beneath,
    open_beneath,
    open_root,
)
from mudroom.stage.copy import clone, copy_open_file
from mudroom.stage.layers.closed_directory import entered, through
from mudroom.stage.layers.layer import remove_at
from mudroom.stage.layers.union import OneLayer, Union
from mudroom.stage.source import Source
from mudroom.stage.source import walk as walk_source
from mudroom.vault.apply.rename import At, exchange, move


def walk(at: At, *, ours: bool = False) -> Iterator[tuple[bytes, Entry]]:
    """Every entry below the directory ``at``, by its path relative to that directory.

    ``ours``: also what a command has closed to its owner; what the user has closed in the project stays so, and
    PermissionError is raised.
    """
    pending = [b""]
    while pending:
        path = pending.pop()
        place = at[1] + b"/" + path if path else at[1]
        found = through(at[0], place, _entries) if ours else _entries(at[0], place)
        for name, entry in found.items():
            below = path + b"/" + name if path else name
            yield below, entry
            if entry.kind == "directory":
                pending.append(below)


def _entries(root: int, path: bytes) -> dict[bytes, Entry]:
    with directory(root, path) as opened:
        return entries(opened)


def differs(found: Iterable[tuple[bytes, Entry]], expected: Mapping[bytes, Entry]) -> bytes | None:
    """The first path of a walk that is not exactly as expected; None if all are."""
    missing = set(expected)
    for path, entry in found:
        if not same_stamp(expected.get(path), entry):
            return path
        missing.discard(path)
    return min(missing, default=None)


def _needs_lending(entry: Entry | None) -> bool:
    """rename(2) of a directory to another parent needs write permission on the directory itself."""
    return entry is not None and entry.kind == "directory" and not entry.mode & 0o200 and os.geteuid() != 0


def is_still(expected: Entry | None, found: Entry | None) -> bool:
    """``same_stamp``, but a directory may still have the write permission that it was lent when we were cut off."""
    if same_stamp(expected, found):
        return True
    if expected is None or found is None or expected.kind != "directory":
        return False
    return same_stamp(expected._replace(mode=expected.mode | 0o200), found)


def settle(at: At, entry: Entry) -> None:
    """Take back the permission that a directory was lent to be moved, in case we were cut off before that."""
    here = look(*at)
    if here is not None and here.kind == "directory" and here.mode != entry.mode and is_still(entry, here):
        set_mode(at, entry.mode)


def move_tree(old: At, new: At, entry: Entry, by: Callable[[At, At], None] = move) -> None:
    """Rename a file or a whole directory, never over anything. Raises OSError as rename(2) does. ``by``: ``move``, or
    ``take`` where ``old`` is the user's and ``new`` is ours."""
    lend = _needs_lending(entry)
    if lend:
        set_mode(old, entry.mode | 0o200)
    try:
        by(old, new)
    except OSError:
        settle(old, entry)
        raise
    if entry.kind == "directory" and not entry.mode & 0o200:
        set_mode(new, entry.mode)


def exchange_trees(one: At, first: Entry | None, other: At, second: Entry | None) -> None:
    """Swap the names of two files or whole directories: ``first``, which is at ``one``, and ``second``."""
    both = [(at, away, entry) for at, away, entry in ((one, other, first), (other, one, second)) if entry is not None]
    lent = [place for place in both if _needs_lending(place[2])]
    for at, _away, entry in lent:
        set_mode(at, entry.mode | 0o200)
    try:
        exchange(one, other)
    except OSError:
        for at, _away, entry in lent:
            settle(at, entry)
        raise
    for _at, away, entry in lent:
        settle(away, entry)


def bring_back(slot: At, at: At, entry: Entry) -> None:
    """Put what was taken out of the project back. Where somebody has put something there meanwhile, that stays: of two
    directories become one, and what has no place in it stays in the slot. Raises FileExistsError if anything did."""
    try:
        move_tree(slot, at, entry)
        return
    except FileExistsError:
        here = look(*at)
        if entry.kind != "directory" or here is None or here.kind != "directory":
            raise
    stayed: FileExistsError | None = None
    with directory(*slot) as source, directory(*at) as target:
        for name, below in entries(source).items():
            try:
                bring_back((source, name), (target, name), below)
            except FileExistsError as error:
                stayed = error
    if stayed is not None:
        raise stayed
    os.rmdir(slot[1], dir_fd=slot[0])


def set_mode(at: At, mode: int) -> None:
    """chmod that never follows a link: by way of an O_PATH descriptor, since fchmodat(2) cannot refuse one."""
    descriptor = os.open(at[1], O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at[0])
    try:
        os.chmod(handle(descriptor), mode)
    finally:
        os.close(descriptor)


def fill_slot(contents: Sequence[bytes], slots: int, op: Op) -> Entry:
    """Bring the staged entry of ``op`` into its slot: a rename on one file system, else a copy. Repeatable.

    Returns the entry as it lies in the slot. Raises ForkMoved if the fork holds something else than was reviewed.
    """
    slot = (slots, b"%d" % op.slot)
    assert op.new is not None
    if look(*slot) is None:
        _bring(contents, slot, op, op.new)
    settle(slot, op.new)
    arrived = look(*slot)
    assert arrived is not None
    return arrived


def fill_merged(merged: bytes, slots: int, op: Op) -> Entry:
    """The same for content that was merged: what lies in the directory ``merged`` under the name that ``op`` has."""
    slot, name = (slots, b"%d" % op.slot), op.merged.encode()
    root = open_root(merged)
    try:
        entry = look(root, name)
        assert entry is not None
        if not _rename((root, name), slot, entry):
            with OneLayer(merged) as source:
                _copy_in(source, slot, name, entry)
    finally:
        os.close(root)
    arrived = look(*slot)
    assert arrived is not None
    return arrived


def _bring(contents: Sequence[bytes], slot: At, op: Op, new: Entry) -> None:
    if len(contents) > 1 or op.copy or not _move_in(contents[0], slot, op, new):
        with Union(contents, None) as staged:
            if not is_still(new, staged.look(op.path)):
                raise ForkMoved(op.path, show(op.path))
            _copy_in(staged, slot, op.path, new)


def _move_in(content: bytes, slot: At, op: Op, new: Entry) -> bool:
    """False if it lies on another file system."""
    above, _slash, name = op.path.rpartition(b"/")
    root = open_root(content)
    try:
        with entered(root, above) as opened:
            if not is_still(new, look(opened, name)):
                raise ForkMoved(op.path, show(op.path))
            return _rename((opened, name), slot, new)
    except (FileNotFoundError, NotADirectoryError):
        raise ForkMoved(op.path, show(op.path)) from None
    finally:
        os.close(root)


def _rename(old: At, new: At, entry: Entry) -> bool:
    try:
        move_tree(old, new, entry)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM):  # a directory that nobody may write to
            raise
        return False
    return True


def _copy_in(staged: Source, new: At, path: bytes, entry: Entry) -> None:
    """A copy with modes, times, links and xattrs. A half-made copy of an earlier try has no slot name yet."""
    beside = (new[0], new[1] + b".part")
    discard(beside)
    if entry.kind == "file":
        opened = staged.open(path)
        try:
            copy_open_file(opened, beside[0], beside[1], entry)
        finally:
            os.close(opened)
    elif entry.kind == "directory":
        os.mkdir(beside[1], 0o700, dir_fd=beside[0])
        below = dict(walk_source(staged, path))
        with directory(*beside) as target:
            clone(_Below(staged, path), target, {at[len(path) + 1 :]: one for at, one in below.items()})
        set_mode(beside, entry.mode)
    elif entry.kind == "symlink":
        os.symlink(entry.target, beside[1], dir_fd=beside[0])
    else:
        os.mkfifo(beside[1], entry.mode, dir_fd=beside[0])
    move(beside, new)


class _Below:
    """The part of a source below a directory, as a source."""

    def __init__(self, source: Source, path: bytes) -> None:
        self._source, self._path = source, path

    def look(self, path: bytes) -> Entry | None:
        return self._source.look(self._path + b"/" + path if path else self._path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        return self._source.names(self._path + b"/" + path if path else self._path)

    def open(self, path: bytes) -> int:
        return self._source.open(self._path + b"/" + path)


def discard(at: At) -> None:
    """Remove a copy of ours, whole or half-made; nothing if there is none. Never for anything of the user's."""
    entry = look(*at)
    if entry is None:
        return
    if entry.kind != "directory":
        os.unlink(at[1], dir_fd=at[0])
        return
    remove_at(*at)


def strip_overlay_xattrs(slots: int, name: bytes, entry: Entry, tree: Mapping[bytes, Entry]) -> None:
    """Remove the overlay's bookkeeping (``user.overlay.*``) from what is about to become the user's.

    ``tree``: what is in a directory. A file in a directory that is new as a whole has such an xattr only if it was
    moved there from the project, and the kernel then marks the directory ``impure`` (fs/overlayfs/dir.c, ovl_rename).
    """
    top = _strip(slots, name)
    if entry.kind != "directory":
        return
    impure = {path for path, one in tree.items() if one.kind == "directory" and _strip(slots, name + b"/" + path)}
    impure |= {b""} if top else set()
    for path, one in tree.items() if impure else ():
        if one.kind != "directory" and path.rpartition(b"/")[0] in impure:
            _strip(slots, name + b"/" + path)


def _strip(root: int, path: bytes) -> bool:
    """Whether it was marked impure."""
    return through(root, path, _strip_one)


def _strip_one(root: int, path: bytes) -> bool:
    """By path below the slots, where nobody but us writes; the last link is not followed."""
    if sys.platform != "linux":
        return _strip_open(root, path)
    full = b"/proc/self/fd/%d/%s" % (root, path)
    try:
        names = os.listxattr(full, follow_symlinks=False)
    except PermissionError:
        raise
    except OSError:
        return False  # no xattrs on this file system, or on this kind of file
    for name in names:
        if name.startswith("user.overlay."):
            _remove_xattr(root, path, full, name)
    return "user.overlay.impure" in names


def _strip_open(root: int, path: bytes) -> bool:
    """Where there is no path of a descriptor. A link has none of these attributes: it is not opened."""
    try:
        descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise
    try:
        found = [name for name in xattr.names(descriptor) if name.startswith("user.overlay.")]
        for name in found:
            xattr.drop(descriptor, name)
    finally:
        os.close(descriptor)
    return "user.overlay.impure" in found


def _remove_xattr(root: int, path: bytes, full: bytes, name: str) -> None:
    """xattr(7): only who may write to a file may change its ``user.`` attributes, its owner is no exception."""
    try:
        os.removexattr(full, name, follow_symlinks=False)
        return
    except PermissionError:
        entry = look_beneath(root, path)
        if entry is None or entry.mode & 0o200:
            raise
    set_mode((root, path), entry.mode | 0o200)
    try:
        os.removexattr(full, name, follow_symlinks=False)
    finally:
        set_mode((root, path), entry.mode)


def sync_path(root: int, path: bytes) -> None:
    descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
