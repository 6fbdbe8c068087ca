"""The write buffer: changes of an agent's file tools that no command has needed on disk yet.

A read looks in the buffer first, then in the tree below. The tree below is never written, and symbolic links are never
followed. The changes form a tree of nodes. A directory's node either merges with a directory below (``below`` is its
path there) or shows none of it (``below`` is None). A deleted name has the value None among the names of its directory.
Renaming a directory therefore moves a single node, whatever it contains, and the node goes on reading from the
directory's old place.

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
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from mudroom.core.tree.entry import Entry, Kind
from mudroom.core.tree.path import is_below, parent, relpath
from mudroom.core.tree.path import name as last
from mudroom.stage.buffer.content import PER_FILE, TOTAL, BufferedContent, Contents, Spool, read_whole
from mudroom.stage.buffer.files import Draft, check_file, no_file, os_error, refusal
from mudroom.stage.buffer.flush import FlushTarget, take_in, write_out
from mudroom.stage.buffer.node import TOP, Node, join, nodes

if TYPE_CHECKING:
    from mudroom.stage.source import Source

_PATH_MAX = 4096
_inodes = itertools.count(1)  # of all buffers: one may lie on another


class Buffer:
    """A ``Tree`` (``stage/buffer/files.py``) over ``below``. Its methods raise ValueError for a path that is not a
    RelPath.

    ``keep(path)`` captures the original of a path, once, before its first change, while the buffer's lock is held.
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
        self._below, self._keep, self._clock = below, keep, clock
        self._contents = Contents(spill, per_file, total)
        self.lock = self._lock = self._contents.lock
        self._root = Node(TOP, b"")
        self._kept: set[bytes] = set()

    @property
    def changed(self) -> bool:
        """Return whether there are changes to flush."""
        with self._lock:
            return any(node is None or node.changed or node.below != at for at, node in nodes(self._root))

    # --- reading ---

    def look(self, path: bytes) -> Entry | None:
        with self._lock:
            node, below = self._find(path) if path else (None, path)
            return node.entry if node is not None else None if below is None else self._below.look(below)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        with self._lock:
            node, below = self._find(path)
            if node is None:
                return {} if below is None else self._below.names(below)
            entries = {} if node.names is None or node.below is None else dict(self._below.names(node.below))
            for name, child in (node.names or {}).items():
                if child is None:
                    entries.pop(name, None)
                else:
                    entries[name] = child.entry
            return entries

    def read(self, path: bytes) -> bytes:
        """Return the content of a file. Content in memory is read without a descriptor."""
        with self._lock:
            content, below = self._content(path)
            return self._contents.read(content) if content is not None else read_whole(self._open_below(path, below))

    def readable(self, path: bytes) -> BinaryIO:
        """Return the content of a file as a stream. Later writes do not show in it."""
        with self._lock:
            content, below = self._content(path)
            if content is not None:
                return self._contents.readable(content)
            return os.fdopen(self._open_below(path, below), "rb")

    def open(self, path: bytes) -> int:
        with self._lock:
            content, below = self._content(path)
            return self._contents.open(content) if content is not None else self._open_below(path, below)

    def _content(self, path: bytes) -> tuple[BufferedContent | None, bytes]:
        """Return the content of a file, or the path below of the file that has it."""
        node, below = self._find(path)
        if node is not None:
            if node.entry.kind != "file":
                raise no_file(node.entry, path)
            if node.content is not None:
                return node.content, b""
            below = node.below
        if below is None:
            raise refusal(self.look, path)
        return None, below

    def _open_below(self, path: bytes, below: bytes) -> int:
        try:
            descriptor = self._below.open(below)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR):
                entry = self.look(path)
                if entry is None or entry.kind != "file":
                    raise refusal(self.look, path) from None
            error.filename = os.fsdecode(path)
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise refusal(self.look, path)
        return descriptor

    def _find(self, path: bytes) -> tuple[Node | None, bytes | None]:
        """Return the node at a path, or the path below that shows there, or (None, None) if the path does not exist."""
        node = self._root
        for name in path.split(b"/") if path else ():
            child = node.names.get(name) if node.names else None
            if child is None:
                return self._find_below(relpath(path))
            node = child
        return node, None

    def _find_below(self, path: bytes) -> tuple[Node | None, bytes | None]:
        """Like ``_find``, for a checked path that may leave the nodes."""
        node, names = self._root, path.split(b"/")
        for index, name in enumerate(names):
            if node.names is None:
                return None, None
            if name not in node.names:
                return None, None if node.below is None else join(node.below, b"/".join(names[index:]))
            child = node.names[name]
            if child is None:
                return None, None
            node = child
        return node, None

    # --- writing ---

    def write(self, path: bytes, content: bytes, mode: int | None = None) -> None:
        """Write the whole content of a file. Its mode is ``mode``, else that of the existing file, else 0o644."""
        path = relpath(path)
        with self._lock:
            self._check_file(path)
            self._place(path, lambda: self._contents.hold(bytes(content)), mode)

    def create(self, path: bytes, mode: int | None = None, *, exclusive: bool = False) -> Draft:
        path = relpath(path)
        with self._lock:
            self._check_file(path, exclusive)
        spool = Spool(self._contents)

        def commit() -> None:
            with self._lock:
                self._check_file(path, exclusive)
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
            if self.names(path):
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
            entry, target = self._existing(old), self.look(new)
            if old != new and entry.kind == "directory" and is_below(new, old):
                raise os_error(errno.EINVAL, new)
            if old != new and is_below(old, new):
                raise os_error(errno.ENOTEMPTY, new)
            if target is not None:
                if old == new or _hard_links(entry, target):
                    return  # rename(2) does nothing in this case
                self._check_replaceable(entry, target, new)
            self._keep_tree(old)
            self._keep_once(new)
            self._move(old, new, entry)

    def chmod(self, path: bytes, mode: int) -> None:
        self._stamp(relpath(path), lambda entry: entry._replace(mode=mode & 0o7777))

    def utime(self, path: bytes, mtime: int) -> None:
        """Set the mtime. That of a directory is not flushed: its mtime is that of the last change in it."""
        self._stamp(relpath(path), lambda entry: entry._replace(mtime=mtime))

    def clear(self) -> None:
        """Drop every change."""
        with self._lock:
            self._release(self._root)
            self._root = Node(TOP, b"")

    # --- what writing is made of ---

    def _existing(self, path: bytes) -> Entry:
        entry = self.look(path)
        if entry is None:
            raise refusal(self.look, path)
        return entry

    def _check_above(self, path: bytes) -> None:
        """Raise OSError unless the parent of ``path`` is a directory. A path too long for any system call could never
        be flushed, so it raises ENAMETOOLONG."""
        if len(path) >= _PATH_MAX:
            raise os_error(errno.ENAMETOOLONG, path)
        above = parent(path)
        entry = self.look(above) if above else TOP
        if entry is None or entry.kind != "directory":
            raise refusal(self.look, path)

    def _check_file(self, path: bytes, exclusive: bool = False) -> None:
        """Raise OSError unless a file can be written at ``path``."""
        self._check_above(path)
        check_file(self.look(path), path, exclusive)

    def _check_replaceable(self, entry: Entry, target: Entry, new: bytes) -> None:
        """Raise OSError unless rename(2) would replace ``target`` by ``entry``."""
        if (entry.kind == "directory") != (target.kind == "directory"):
            raise os_error(errno.EISDIR if target.kind == "directory" else errno.ENOTDIR, new)
        if self.names(new):
            raise os_error(errno.ENOTEMPTY, new)

    def _keep_once(self, path: bytes) -> None:
        if path not in self._kept:
            self._keep(path)
            self._kept.add(path)

    def _keep_tree(self, path: bytes) -> None:
        pending = [path]
        while pending:
            at = pending.pop()
            self._keep_once(at)
            pending += [at + b"/" + name for name in self.names(at)]

    def _entry(self, kind: Kind, mode: int, size: int = 0, target: bytes = b"") -> Entry:
        now, (uid, gid) = self._clock(), _owner()
        return Entry(kind, mode & 0o7777, size, target, 0, next(_inodes), 1, uid, gid, now, now)

    def _place(self, path: bytes, hold: Callable[[], BufferedContent], mode: int | None) -> None:
        """Write the content that ``hold`` creates to a checked path."""
        self._keep_once(path)
        directory, name, old = self._directory(path), last(path), self.look(path)
        content = hold()
        mode = mode if mode is not None else old.mode if old is not None else 0o644
        self._put(directory, name, Node(self._entry("file", mode, content.size), content=content))

    def _put_new(self, path: bytes, node: Node) -> None:
        with self._lock:
            self._check_above(path)
            if self.look(path) is not None:
                raise os_error(errno.EEXIST, path)
            self._keep_once(path)
            self._put(self._directory(path), last(path), node)

    def _put(self, directory: Node, name: bytes, node: Node) -> None:
        """Store a node. Only the removal of a spilled file can fail here, so it comes last."""
        assert directory.names is not None
        replaced = directory.names.get(name)
        directory.names[name] = node
        self._touch(directory)
        if replaced is not None:
            self._release(replaced)

    def _drop(self, path: bytes) -> None:
        self._keep_tree(path)
        node = self._detach(path)
        if node is not None:
            self._release(node)

    def _detach(self, path: bytes) -> Node | None:
        """Delete ``path``. Return its node, or None if the buffer had none."""
        directory, name = self._directory(path), last(path)
        assert directory.names is not None
        hides = directory.below is not None and self._below.look(join(directory.below, name)) is not None
        node = directory.names.pop(name, None)
        if hides:
            directory.names[name] = None
        self._touch(directory)
        return node

    def _touch(self, directory: Node) -> None:
        now = self._clock()
        directory.entry = directory.entry._replace(mtime=now, ctime=now)

    def _move(self, old: bytes, new: bytes, entry: Entry) -> None:
        node, target = self._own(old, entry), self._directory(new)
        self._detach(old)
        node.entry = entry._replace(ctime=self._clock())
        self._put(target, last(new), node)

    def _directory(self, path: bytes) -> Node:
        """Return the node of the parent directory of a checked path; create missing nodes on the way."""
        node = self._root
        for name in path.split(b"/")[:-1]:
            assert node.names is not None
            child = node.names.get(name)
            if child is None:
                assert node.below is not None
                below = join(node.below, name)
                entry = self._below.look(below)
                if entry is None or entry.kind != "directory":
                    raise os_error(errno.ENOENT, path)  # deleted since it was checked
                child = node.names[name] = Node(entry, below)
            node = child
        return node

    def _stamp(self, path: bytes, stamped: Callable[[Entry], Entry]) -> None:
        with self._lock:
            entry = self._existing(path)
            if entry.kind == "symlink":
                raise os_error(errno.ELOOP, path)
            self._keep_once(path)
            node = self._own(path, entry)
            node.entry = stamped(node.entry._replace(ctime=self._clock()))
            node.changed = True

    def _own(self, path: bytes, entry: Entry) -> Node:
        """Return the node at ``path``; create it if missing."""
        directory, name = self._directory(path), last(path)
        assert directory.names is not None
        node = directory.names.get(name)
        if node is None:
            assert directory.below is not None
            node = directory.names[name] = Node(entry, join(directory.below, name))
        return node

    def _release(self, node: Node) -> None:
        for _at, below in [(b"", node), *nodes(node)]:
            if below is not None and below.content is not None:
                self._contents.release(below.content)
                below.content = None

    # --- flushing ---

    def flush(self, writer: FlushTarget, below: Callable[[], Source] | None = None) -> list[bytes]:
        """Write everything that differs, then drop it. ``below`` returns the tree that the buffer lies on from then on.

        Before the first write, all content that is still read from below is taken into the buffer, because the target
        may be a part of the tree below. So if this raises, no change is lost, and the call can be repeated. Return the
        paths that cannot be written: sockets, devices, and renamed files that have been deleted from below meanwhile.
        """
        with self._lock:
            lost = take_in(self._root, self._below, self._contents)
            try:
                write_out(self._root, self._contents, writer)
            finally:
                writer.finish()
            if below is not None:
                self._below = below()
            self.clear()
            return lost


def _hard_links(a: Entry, b: Entry) -> bool:
    return a.kind == "file" and a.links > 1 and (a.device, a.inode) == (b.device, b.inode)


def _owner() -> tuple[int, int]:
    return (os.geteuid(), os.getegid()) if hasattr(os, "geteuid") else (0, 0)
