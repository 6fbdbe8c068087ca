"""The write buffer: changes by an agent's file tools that no command has needed on disk yet.

A read looks in the buffer first, then in the tree below. The tree below is never written, and symbolic links are never
followed. The changes form a tree of nodes (``stage/buffer/node_tree.py``).

Before a path is changed for the first time, the caller's ``keep`` captures its original; if that fails, the path is not
changed. Permissions are stored but not enforced; extended attributes are not stored. A file that was renamed, or had
its mode set, and was not written since is still read from below: if the content below changes meanwhile, the change
shows.

This module does not need Linux.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable

from mudroom.core.tree.entry import Entry, Kind
from mudroom.core.tree.path import is_below, parent, relpath
from mudroom.core.tree.path import name as last
from mudroom.stage.buffer.content import PER_FILE, TOTAL, BufferedContent, Contents, Spool, read_whole
from mudroom.stage.buffer.files import Draft, check_file, moved_on, os_error, refusal, version
from mudroom.stage.buffer.flush import FlushTarget, take_in, write_out
from mudroom.stage.buffer.node import TOP, Node, join, nodes
from mudroom.stage.buffer.node_tree import NodeTree
from mudroom.typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from mudroom.stage.source import Source

_PATH_MAX = 4096
_inodes = itertools.count(1)  # shared by all buffers: a buffer may lie on another


class Buffer:
    """A ``Tree`` (``stage/buffer/files.py``) over ``below``. Its methods raise ValueError for a path that is not a
    RelPath.

    ``keep(path)`` captures a path's original before its first change since the last flush, with the lock held.
    ``spill`` is a directory for content that does not fit into memory. ``clock`` returns nanoseconds since 1970.
    """

    def __init__(
        self,
        below: Source,
        *,
        keep: Callable[[bytes], None],
        spill: bytes,
        per_file: int = PER_FILE,
        total: int = TOTAL,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._keep, self._clock = keep, clock
        self._contents = Contents(spill, per_file, total)
        self.lock = self._lock = self._contents.lock
        self._nodes = NodeTree(below, self._contents, clock)
        self._kept: set[bytes] = set()

    @property
    def changed(self) -> bool:
        """Return whether there are changes to flush."""
        with self._lock:
            return self._nodes.changed

    # --- reading ---

    def look(self, path: bytes) -> Entry | None:
        with self._lock:
            return self._nodes.look(path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        with self._lock:
            return self._nodes.names(path)

    def read(self, path: bytes) -> bytes:
        """Return a file's content. Content in memory is read without a descriptor."""
        with self._lock:
            content, below = self._nodes.content(path)
            if content is not None:
                return self._contents.read(content)
            return read_whole(self._nodes.open_below(path, below))

    def readable(self, path: bytes) -> BinaryIO:
        """Return a file's content as a stream. Later writes do not show in it."""
        with self._lock:
            content, below = self._nodes.content(path)
            if content is not None:
                return self._contents.readable(content)
            return os.fdopen(self._nodes.open_below(path, below), "rb")

    def open(self, path: bytes) -> int:
        with self._lock:
            content, below = self._nodes.content(path)
            return self._contents.open(content) if content is not None else self._nodes.open_below(path, below)

    # --- writing ---

    def write(self, path: bytes, content: bytes, mode: int | None = None) -> None:
        """Write a file's whole content. Its mode is ``mode``, else the existing file's, else 0o644."""
        path = relpath(path)
        with self._lock:
            self._check_file(path)
            self._place(path, lambda: self._contents.hold(bytes(content)), mode)

    def create(self, path: bytes, mode: int | None = None, *, exclusive: bool = False) -> Draft:
        path = relpath(path)
        with self._lock:
            self._check_file(path, exclusive)
            started = version(self._nodes.look(path))
        spool = Spool(self._contents)

        def commit() -> None:
            with self._lock:
                self._check_file(path, exclusive)
                if version(self._nodes.look(path)) != started:
                    raise moved_on(path)
                self._place(path, spool.finish, mode)

        return Draft(spool, commit, spool.abandon)

    def mkdir(self, path: bytes, mode: int = 0o755) -> None:
        self._put_new(relpath(path), Node(self._entry("directory", mode)))

    def symlink(self, path: bytes, target: bytes) -> None:
        path = relpath(path)
        if b"\0" in target:
            raise ValueError("a link target cannot hold a NUL")
        if not 0 < len(target) < _PATH_MAX:
            raise os_error(errno.ENAMETOOLONG if target else errno.ENOENT, path)
        self._put_new(path, Node(self._entry("symlink", 0, 0, bytes(target))))

    def unlink(self, path: bytes) -> None:
        path = relpath(path)
        with self._lock:
            if self._existing(path).kind == "directory":
                raise os_error(errno.EISDIR, path)
            self._drop(path)

    def rmdir(self, path: bytes) -> None:
        path = relpath(path)
        with self._lock:
            if self._existing(path).kind != "directory":
                raise os_error(errno.ENOTDIR, path)
            if self._nodes.names(path):
                raise os_error(errno.ENOTEMPTY, path)
            self._drop(path)

    def remove(self, path: bytes) -> None:
        path = relpath(path)
        with self._lock:
            self._existing(path)
            self._drop(path)

    def rename(self, old: bytes, new: bytes) -> None:
        old, new = relpath(old), relpath(new)
        with self._lock:
            self._check_above(old)
            self._check_above(new)
            entry, target = self._existing(old), self._nodes.look(new)
            if old != new and entry.kind == "directory" and is_below(new, old):
                raise os_error(errno.EINVAL, new)
            if old != new and is_below(old, new):
                raise os_error(errno.ENOTEMPTY, new)
            if target is not None:
                if old == new or _hard_links(entry, target):
                    return  # rename(2) does nothing in this case
                _check_replaceable(self._nodes, entry, target, new)
            self._keep_tree(old)
            self._keep_once(new)
            self._nodes.move(old, new, entry)

    def chmod(self, path: bytes, mode: int) -> None:
        self._stamp(relpath(path), lambda entry: entry._replace(mode=mode & 0o7777))

    def utime(self, path: bytes, mtime: int) -> None:
        """Set the mtime. A directory's is not flushed: its mtime is the time of the last change in it."""
        self._stamp(relpath(path), lambda entry: entry._replace(mtime=mtime))

    def clear(self) -> None:
        """Drop every change."""
        with self._lock:
            self._nodes.clear()

    # --- helpers for writing; the lock is held ---

    def _existing(self, path: bytes) -> Entry:
        entry = self._nodes.look(path)
        if entry is None:
            raise refusal(self._nodes.look, path)
        return entry

    def _check_above(self, path: bytes) -> None:
        """Raise OSError unless the parent of ``path`` is a directory."""
        # A path too long for every system call could never be flushed.
        if len(path) >= _PATH_MAX:
            raise os_error(errno.ENAMETOOLONG, path)
        above = parent(path)
        entry = self._nodes.look(above) if above else TOP
        if entry is None or entry.kind != "directory":
            raise refusal(self._nodes.look, path)

    def _check_file(self, path: bytes, exclusive: bool = False) -> None:
        """Raise OSError unless a file can be written at ``path``."""
        self._check_above(path)
        check_file(self._nodes.look(path), path, exclusive)

    def _keep_once(self, path: bytes) -> None:
        if path not in self._kept:
            self._keep(path)
            self._kept.add(path)

    def _keep_tree(self, path: bytes) -> None:
        pending = [path]
        while pending:
            at = pending.pop()
            self._keep_once(at)
            pending += [at + b"/" + name for name in self._nodes.names(at)]

    def _entry(self, kind: Kind, mode: int, size: int = 0, target: bytes = b"") -> Entry:
        now, (uid, gid) = self._clock(), _owner()
        return Entry(kind, mode & 0o7777, size, target, 0, next(_inodes), 1, uid, gid, now, now)

    def _place(self, path: bytes, hold: Callable[[], BufferedContent], mode: int | None) -> None:
        """Write the content that ``hold`` creates to a checked path."""
        self._keep_once(path)
        directory, name, old = self._nodes.directory(path), last(path), self._nodes.look(path)
        content = hold()
        mode = mode if mode is not None else old.mode if old is not None else 0o644
        self._nodes.put(directory, name, Node(self._entry("file", mode, content.size), content=content))

    def _put_new(self, path: bytes, node: Node) -> None:
        with self._lock:
            self._check_above(path)
            if self._nodes.look(path) is not None:
                raise os_error(errno.EEXIST, path)
            self._keep_once(path)
            self._nodes.put(self._nodes.directory(path), last(path), node)

    def _drop(self, path: bytes) -> None:
        self._keep_tree(path)
        node = self._nodes.detach(path)
        if node is not None:
            self._nodes.release(node)

    def _stamp(self, path: bytes, stamped: Callable[[Entry], Entry]) -> None:
        with self._lock:
            entry = self._existing(path)
            if entry.kind == "symlink":
                raise os_error(errno.ELOOP, path)
            self._keep_once(path)
            node = self._nodes.own(path, entry)
            node.entry = stamped(node.entry._replace(ctime=self._clock()))
            node.changed = True

    # --- flushing ---

    def flush(self, writer: FlushTarget, below: Callable[[], Source] | None = None) -> list[bytes]:
        """Write everything that differs, then drop it. ``below`` returns the tree on which the buffer lies from then
        on.

        Before the first write, all content that is still read from below is taken into the buffer, because the target
        may be a part of the tree below. So if this raises, no change is lost, and the call can be repeated. Return the
        paths that cannot be written: sockets, devices, and renamed files that have been deleted from below meanwhile.
        """
        with self._lock:
            lost = take_in(self._nodes.root, self._nodes.below, self._contents)
            try:
                write_out(self._nodes.root, self._contents, writer)
            finally:
                writer.finish()
            if below is not None:
                self._nodes.below = below()
            self._nodes.clear()
            self._kept.clear()
            return lost

    def withdraw(self, path: bytes) -> list[tuple[bytes, int]]:
        """Drop the changes at ``path`` and below it. Return the dropped contents: paths with descriptors to close."""
        with self._lock:
            node = self._nodes.forget(path)
            if node is None:
                return []
            held = [(at, below) for at, below in [(path, node), *nodes(node)] if below is not None and below.content]
            contents = [
                (at if below is node else join(path, at), self._contents.open(below.content))
                for at, below in held
                if below.content is not None
            ]
            self._nodes.release(node)
            return contents

    def merge_directory(self, path: bytes) -> None:
        """Merge a new directory at ``path``, if there is one, with the one that another writer has made below."""
        with self._lock:
            (node, _below), entry = self._nodes.find(path), self._nodes.below.look(path)
            is_new = node is not None and node.names is not None and node.below is None
            if node is not None and is_new and entry is not None and entry.kind == "directory":
                node.entry, node.below = entry, path


def _check_replaceable(tree: NodeTree, entry: Entry, target: Entry, new: bytes) -> None:
    """Raise OSError unless rename(2) would replace ``target`` by ``entry``."""
    if (entry.kind == "directory") != (target.kind == "directory"):
        raise os_error(errno.EISDIR if target.kind == "directory" else errno.ENOTDIR, new)
    if tree.names(new):
        raise os_error(errno.ENOTEMPTY, new)


def _hard_links(a: Entry, b: Entry) -> bool:
    return a.kind == "file" and a.links > 1 and (a.device, a.inode) == (b.device, b.inode)


def _owner() -> tuple[int, int]:
    return (os.geteuid(), os.getegid()) if hasattr(os, "geteuid") else (0, 0)
