"""Publication: a fork's new cache entries are copied to its pool and removed from the fork.

Rules of this file:

1. It runs when no process is alive in the fork. Every pool file is a new inode that no sandbox has had open: a
   descriptor that a process has passed on leads to a file that is no longer read.
2. Regular files and directories are published, and links that stay in their cache. Sockets, FIFOs, devices, unreadable
   files and everything in a directory that the fork has replaced stay in the fork.
3. A file keeps its owner's execute and read bits. It is writable by no other user, and never set-id.
4. A pool file is replaced by rename(2): a command that has it open keeps the old content.
5. A database with a journal beside it (SQLite's ``-wal``, ``-shm``, ``-journal``) stays in the fork: copied file by
   file it would be torn.
6. Publication is bounded in files, depth and bytes. Entries beyond the bounds stay in the fork.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.errors import FULL
from mudroom.stage import disk, safe_open, xattr
from mudroom.stage.beneath import O_PATH, directory, entries, handle, look, open_beneath
from mudroom.stage.copy import copy_content
from mudroom.stage.layers.layer import OPAQUE, remove_tree
from mudroom.vault.caches.pool import SharedCache
from mudroom.vault.lock import Lock

MOST_FILES, MOST_LEVELS, LONGEST_PATH = 200_000, 64, 3_000
_DATABASE = (b"-wal", b"-shm", b"-journal")


def publish(layer: bytes, pool: SharedCache, limit: int, *, keep: bool = False) -> list[str]:
    """Publish the new entries in a fork's ``layer`` to a pool, and keep the pool within ``limit`` bytes. Return notes.

    A failure is a note, too: the entries stay in the fork. ``keep``: the fork keeps its entries in any case, and an
    entry is not new if the pool has it with the same size and time.
    """
    try:
        with Lock(pool.path + b".lock", "publishing cache entries"):
            with Descriptor(safe_open.open_directory(layer)) as source:
                publication = _Publication(source, pool.path, limit, keep=keep)
                publication.run()
            return [*publication.notes, *pool.add(publication.published, limit)]
    except OSError as error:
        return [f"new entries of the caches stay in their fork: {error}"]


class _Publication:
    """Publishes a layer, on the thread that holds the pool's lock."""

    def __init__(self, upper: int, pool: bytes, limit: int, *, keep: bool) -> None:
        self._upper, self._pool, self._limit, self._keep = upper, pool, limit, keep
        self._beside = pool + b".new"
        self._files = 0
        self.published: dict[bytes, int] = {}
        """Bytes published, by cache name."""
        self.notes: list[str] = []

    def run(self) -> None:
        if os.path.isdir(self._beside):
            remove_tree(self._beside)  # left by a crash
        os.mkdir(self._beside, 0o700)
        target, beside = safe_open.open_directory(self._pool), safe_open.open_directory(self._beside)
        try:
            self._walk(target, beside)
        finally:
            os.close(target)
            os.close(beside)
            os.rmdir(self._beside)

    def _walk(self, target: int, beside: int) -> None:
        """Publish depth first; a fork's directory is removed after its entries if it is empty by then."""
        pending = [(b"", False)]
        while pending and not self.notes:
            path, done = pending.pop()
            if done:
                if not self._keep:
                    self._remove_empty(path)
                continue
            pending.append((path, True))
            pending += [(below, False) for below in self._directory(path, target, beside)]

    def _directory(self, path: bytes, target: int, beside: int) -> list[bytes]:
        """Publish the files in a directory. Return its subdirectories that must be published, too."""
        below = []
        with directory(self._upper, path) as source, directory(target, path) as place:
            listed = entries(source)
            torn = _databases(listed)
            for name, entry in listed.items():
                at = path + b"/" + name if path else name
                if entry.kind == "directory" and self._enter(source, place, name, entry, at):
                    below.append(at)
                elif path and name not in torn and entry.kind in ("file", "symlink"):
                    self._take(source, place, beside, at, entry)
                if self.notes:
                    break
        return below

    def _enter(self, source: int, place: int, name: bytes, entry: Entry, at: bytes) -> bool:
        """Make the directory in the pool, and give this process access to the fork's directory. Return whether it is
        published."""
        if at.count(b"/") >= MOST_LEVELS or len(at) > LONGEST_PATH:
            return False
        with Descriptor(open_beneath(source, name, O_PATH | disk.O_DIRECTORY)) as descriptor:
            if entry.mode & stat.S_IRWXU != stat.S_IRWXU:
                disk.set_mode_by(handle(descriptor), 0o700)
        try:
            disk.mkdir(place, name, 0o755)
            return True
        except FileExistsError:
            is_directory = stat.S_ISDIR(disk.stat_at(place, name).st_mode)
            return is_directory and not _is_opaque(source, name)

    def _take(self, source: int, place: int, beside: int, at: bytes, entry: Entry) -> None:
        name = at.rpartition(b"/")[2]
        if self._keep and _is_same(look(place, name), entry):
            return
        self._files += 1
        if self._files > MOST_FILES or sum(self.published.values()) + entry.size > self._limit:
            self.notes.append("the caches have more new entries than are kept: the rest stays in this fork")
            return
        try:
            made = _copy(source, beside, name, entry) if entry.kind == "file" else _link(beside, at, entry)
            if made:
                disk.rename(beside, b"new", place, name)
                if not self._keep:
                    disk.unlink(source, name)
                cache = at.partition(b"/")[0]
                self.published[cache] = self.published.get(cache, 0) + entry.size
        except OSError as error:
            if os.path.lexists(self._beside + b"/new"):
                disk.unlink(beside, b"new")
            if error.errno in FULL:
                self.notes.append(f"the disk is full: new entries of the caches stay in this fork ({show(at)})")
            elif error.errno not in (errno.EACCES, errno.EISDIR, errno.ENOTEMPTY):
                raise

    def _remove_empty(self, path: bytes) -> None:
        above, _slash, name = path.rpartition(b"/")
        if not path:
            return
        with directory(self._upper, above) as parent:
            try:
                disk.rmdir(parent, name)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise


def _is_same(there: Entry | None, entry: Entry) -> bool:
    """Whether the pool already has an entry, by the metadata that a copy keeps."""
    if there is None or there.kind != entry.kind:
        return False
    if entry.kind == "symlink":
        return there.target == entry.target
    return (there.size, there.mtime) == (entry.size, entry.mtime)


def _copy(source: int, beside: int, name: bytes, entry: Entry) -> bool:
    with (  # a new inode: a sandbox may still hold a descriptor of the fork's file
        Descriptor(
            disk.open_at(source, name, os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC)
        ) as read,
        Descriptor(disk.open_at(beside, b"new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600)) as write,
    ):
        copy_content(read, write, entry.size)
        disk.set_mode_of(write, entry.mode & 0o755 | stat.S_IRUSR)
        disk.set_times_of(write, entry.mtime)
    return True


def _link(beside: int, at: bytes, entry: Entry) -> bool:
    """Make the link if its target, resolved lexically, is in the same cache."""
    if entry.target.startswith(b"/"):
        return False
    depth = at.count(b"/") - 1
    for part in entry.target.split(b"/"):
        depth += -1 if part == b".." else part not in (b"", b".")
        if depth < 0:
            return False
    disk.symlink(beside, b"new", entry.target)
    return True


def _databases(listed: Iterable[bytes]) -> set[bytes]:
    """Return the names of journals, and of the databases beside them."""
    journals = {name for name in listed if name.endswith(_DATABASE)}
    return journals | {name.rpartition(b"-")[0] for name in journals}


def _is_opaque(source: int, name: bytes) -> bool:
    with directory(source, name) as opened:
        try:
            return xattr.get(opened, OPAQUE) == b"y"
        except OSError:
            return False  # no such attribute
