"""Move, copy and compare whole trees by descriptor: an apply's operations on directories."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from mudroom.core.merge.operations import Op
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.core.tree.landing_form import is_reviewed
from mudroom.core.tree.path import show
from mudroom.errors import ForkMoved
from mudroom.stage import disk, xattr
from mudroom.stage.beneath import (
    O_PATH,
    directory,
    entries,
    handle,
    look,
    open_beneath,
    open_root,
)
from mudroom.stage.copy import clone, copy_open_file
from mudroom.stage.layers.closed_directory import LastEntered, through
from mudroom.stage.layers.layer import remove_at
from mudroom.stage.layers.union import OneLayer, Union
from mudroom.stage.source import Source
from mudroom.stage.source import walk as walk_source
from mudroom.vault.apply.rename import At, exchange, move


def walk(at: At, *, ours: bool = False) -> Iterator[tuple[bytes, Entry]]:
    """Yield every entry below the directory ``at``, with its path relative to that directory.

    ``ours``: also enter directories that a command has closed to their owner. Otherwise raise PermissionError for them:
    the user's own closed directories stay closed.
    """
    pending = [b""]
    while pending:
        path = pending.pop()
        place = at[1] + b"/" + path if path else at[1]
        listing = through(at[0], place, _entries) if ours else _entries(at[0], place)
        for name, entry in listing.items():
            below = path + b"/" + name if path else name
            yield below, entry
            if entry.kind == "directory":
                pending.append(below)


def _entries(root: int, path: bytes) -> dict[bytes, Entry]:
    with directory(root, path) as opened:
        return entries(opened)


def first_difference(
    entries: Iterable[tuple[bytes, Entry]],
    expected: Mapping[bytes, Entry],
    is_same: Callable[[Entry | None, Entry | None], bool] = same_stamp,
) -> bytes | None:
    """Return the first path in a walk that differs from the expected entries, or None."""
    missing = set(expected)
    for path, entry in entries:
        if not is_same(expected.get(path), entry):
            return path
        missing.discard(path)
    return min(missing, default=None)


def _needs_lending(entry: Entry | None) -> bool:
    """Whether the directory needs temporary write permission: rename(2) to another parent requires it."""
    return entry is not None and entry.kind == "directory" and not entry.mode & 0o200 and disk.user() != 0


def is_unchanged(expected: Entry | None, current: Entry | None) -> bool:
    """Compare as ``same_stamp`` does, but accept the temporary write permission that an interrupted move left on a
    directory."""
    if same_stamp(expected, current):
        return True
    if expected is None or current is None or expected.kind != "directory":
        return False
    return same_stamp(expected._replace(mode=expected.mode | 0o200), current)


def _is_as_reviewed(reviewed: Entry, current: Entry | None) -> bool:
    """Compare as ``is_unchanged`` does, for an entry in the fork: its mode may have bits that do not land."""
    if is_unchanged(reviewed, current) or is_reviewed(reviewed, current):
        return True
    return reviewed.kind == "directory" and is_reviewed(reviewed._replace(mode=reviewed.mode | 0o200), current)


def settle(at: At, entry: Entry) -> Entry | None:
    """Remove a directory's temporary write permission, in case the move was interrupted before that. Return the entry
    that is now there."""
    current = look(*at)
    if current is None or current.kind != "directory" or current.mode == entry.mode:
        return current
    if not is_unchanged(entry, current):
        return current
    set_mode(at, entry.mode)
    return look(*at)


def move_tree(old: At, new: At, entry: Entry, by: Callable[[At, At], None] = move) -> None:
    """Rename a file or a whole directory; never replace an existing name. Raise OSError as rename(2) does.

    ``by``: ``move``, or ``take`` if ``old`` is the user's and ``new`` is mudroom's.
    """
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
    """Swap two files or whole directories: the entry ``first`` at ``one`` and ``second`` at ``other``."""
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


def put_back(slot: At, at: At, entry: Entry) -> None:
    """Return a file or directory that was removed from the project to its path.

    If the path is taken, the file there stays. Two directories are merged, and entries without a free name stay in the
    slot. Raise FileExistsError if any entry stayed.
    """
    try:
        move_tree(slot, at, entry)
        return
    except FileExistsError:
        current = look(*at)
        if entry.kind != "directory" or current is None or current.kind != "directory":
            raise
    stayed: FileExistsError | None = None
    with directory(*slot) as source, directory(*at) as target:
        for name, below in entries(source).items():
            try:
                put_back((source, name), (target, name), below)
            except FileExistsError as error:
                stayed = error
    if stayed is not None:
        raise stayed
    disk.rmdir(slot[0], slot[1])


def set_mode(at: At, mode: int) -> None:
    """Change a mode without following a link, through an O_PATH descriptor: fchmodat(2) cannot refuse to follow
    links."""
    with Descriptor(disk.open_at(at[0], at[1], O_PATH | disk.O_NOFOLLOW | disk.O_CLOEXEC)) as descriptor:
        disk.set_mode_by(handle(descriptor), mode)


def fill_slot(contents: Sequence[bytes], fork: LastEntered, slots: int, filled: Collection[bytes], op: Op) -> Entry:
    """Bring the staged entry of ``op`` into its slot: by rename on the same file system, else by copy. Repeatable.

    ``fork``: the directories in ``contents[0]``. ``filled``: names of the slots that already have content. Return the
    slot's entry, with its reviewed mode if the file system keeps modes (FAT does not). Raise ForkMoved if the fork does
    not hold the reviewed entry.
    """
    slot = (slots, b"%d" % op.slot)
    assert op.new is not None
    if slot[1] not in filled:
        _fill(contents, fork, slot, op, op.new)
    arrived = settle(slot, op.new)
    assert arrived is not None
    if arrived.mode == op.new.mode or arrived.kind != op.new.kind:
        return arrived
    set_mode(slot, op.new.mode)
    kept = look(*slot)
    return arrived._replace(mode=op.new.mode if kept is None or kept.mode == op.new.mode else kept.mode)


def fill_merged(merged: bytes, slots: int, op: Op) -> Entry:
    """Bring merged content into its slot: the file ``op.merged`` in the directory ``merged``. Return its entry."""
    slot, name = (slots, b"%d" % op.slot), op.merged.encode()
    with Descriptor(open_root(merged)) as root:
        entry = look(root, name)
        assert entry is not None
        if not _rename((root, name), slot, entry):
            with OneLayer(merged) as source:
                _copy_in(source, slot, name, entry)
    arrived = look(*slot)
    assert arrived is not None
    return arrived


def _fill(contents: Sequence[bytes], fork: LastEntered, slot: At, op: Op, new: Entry) -> None:
    if len(contents) > 1 or op.copy or not _move_in(fork, slot, op, new):
        fork.leave()  # the modes of directories are read below
        with Union(contents, None) as staged:
            if not _is_as_reviewed(new, staged.look(op.path)):
                raise ForkMoved(op.path, show(op.path))
            _copy_in(staged, slot, op.path, new)


def _move_in(fork: LastEntered, slot: At, op: Op, new: Entry) -> bool:
    """Move the staged entry into the slot. Return False if the slot is on another file system."""
    above, _slash, name = op.path.rpartition(b"/")
    try:
        opened = fork.enter(above)
        if not _is_as_reviewed(new, look(opened, name)):
            raise ForkMoved(op.path, show(op.path))
        return _rename((opened, name), slot, new)
    except (FileNotFoundError, NotADirectoryError):
        raise ForkMoved(op.path, show(op.path)) from None


def _rename(old: At, new: At, entry: Entry) -> bool:
    try:
        move_tree(old, new, entry)
    except OSError as error:
        # EACCES, EPERM: a directory without write permission
        if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM):
            raise
        return False
    return True


def _copy_in(staged: Source, new: At, path: bytes, entry: Entry) -> None:
    """Copy with modes, times, links and xattrs. A partial copy from an earlier attempt has the suffix ``.part``."""
    beside = (new[0], new[1] + b".part")
    discard(beside)
    if entry.kind == "file":
        with Descriptor(staged.open(path)) as opened:
            copy_open_file(opened, beside[0], beside[1], entry)
    elif entry.kind == "directory":
        disk.mkdir(beside[0], beside[1], 0o700)
        below = dict(walk_source(staged, path))
        with directory(*beside) as target:
            clone(_Below(staged, path), target, {at[len(path) + 1 :]: child for at, child in below.items()})
        set_mode(beside, entry.mode)
    elif entry.kind == "symlink":
        disk.symlink(beside[0], beside[1], entry.target)
    else:
        raise ForkMoved(path, show(path))  # a changeset has no such entry: core/tree/landing_form.py
    move(beside, new)


class _Below:
    """The subtree of a source below a directory, as a source."""

    def __init__(self, source: Source, path: bytes) -> None:
        self._source, self._path = source, path

    def look(self, path: bytes) -> Entry | None:
        return self._source.look(self._path + b"/" + path if path else self._path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        return self._source.names(self._path + b"/" + path if path else self._path)

    def open(self, path: bytes) -> int:
        return self._source.open(self._path + b"/" + path)


def discard(at: At) -> None:
    """Remove a copy made by mudroom, complete or partial, if it exists. Never call it for a user's file."""
    entry = look(*at)
    if entry is None:
        return
    if entry.kind != "directory":
        disk.unlink(at[0], at[1])
        return
    remove_at(*at)


def leave_layer(root: int, path: bytes) -> None:
    """Remove a layer's marks from an entry that is about to be the user's, on systems other than Linux, where they are
    attributes (``form.py``)."""
    if sys.platform == "win32":
        from mudroom.core.registry import twin

        twin("disk").leave_layer(root, path)
    else:
        _strip_open(root, path)


def _strip_open(root: int, path: bytes) -> None:
    """Strip by descriptor, for systems without /proc/self/fd. A symlink is not opened: it has no such attribute."""
    try:
        descriptor = open_beneath(root, path, os.O_RDONLY | disk.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return
        raise
    with Descriptor(descriptor):
        for name in [name for name in xattr.names(descriptor) if name.startswith("user.overlay.")]:
            xattr.drop(descriptor, name)


def sync_path(root: int, path: bytes) -> None:
    with Descriptor(open_beneath(root, path, os.O_RDONLY | disk.O_NONBLOCK)) as descriptor:
        disk.sync(descriptor)
