"""The write buffer: changes by an agent's file tools that no command has needed on disk yet.

A read looks in the buffer first, then in the tree below. The tree below is never written, and symbolic links are never
followed. The changes form a tree of nodes.

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

from mudroom.core.tree.entry import Entry, Kind
from mudroom.core.tree.path import is_below, parent, relpath
from mudroom.core.tree.path import name as last
from mudroom.stage.buffer.content import PER_FILE, TOTAL, BufferedContent, Contents, Spool, read_whole
from mudroom.stage.buffer.files import Draft, check_file, moved_on, no_file, os_error, refusal, version
from mudroom.stage.buffer.flush import FlushTarget, take_in, write_out
from mudroom.stage.buffer.node import TOP, Node, join, nodes
from mudroom.typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from mudroom.stage.source import Source


# --- the tree of nodes over the tree below ---
# A directory's node either merges with a directory below (``below`` is its path there) or hides it (``below`` is None).
# A deleted name has the value None in its directory's ``names``. Renaming a directory therefore moves a single node,
# whatever it contains, and the node goes on reading from the directory's old place.


class NodeTree:
    """Finds and places nodes. Not locked: its owner, a ``Buffer``, calls it with the buffer's lock held.

    The owner replaces ``root`` and ``below``; ``clear`` replaces ``root``, too. The owner checks paths before it
    changes them.
    """

    def __init__(self, below: Source, contents: Contents, clock: Callable[[], int]) -> None:
        self.below, self._contents, self._clock = below, contents, clock
        self.root = Node(TOP, b"")

    @property
    def changed(self) -> bool:
        return any(node is None or node.changed or node.below != at for at, node in nodes(self.root))

    def look(self, path: bytes) -> Entry | None:
        node, below = self.find(path) if path else (None, path)
        return node.entry if node is not None else None if below is None else self.below.look(below)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        node, below = self.find(path)
        if node is None:
            return {} if below is None else self.below.names(below)
        entries = {} if node.names is None or node.below is None else dict(self.below.names(node.below))
        for name, child in (node.names or {}).items():
            if child is None:
                entries.pop(name, None)
            else:
                entries[name] = child.entry
        return entries

    def content(self, path: bytes) -> tuple[BufferedContent | None, bytes]:
        """Return a file's content, or the path below of the file that has it."""
        node, below = self.find(path)
        if node is not None:
            if node.entry.kind != "file":
                raise no_file(node.entry, path)
            if node.content is not None:
                return node.content, b""
            below = node.below
        if below is None:
            raise refusal(self.look, path)
        return None, below

    def open_below(self, path: bytes, below: bytes) -> int:
        try:
            descriptor = self.below.open(below)
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

    def find(self, path: bytes) -> tuple[Node | None, bytes | None]:
        """Return the node at a path, or the path in the tree below that shows there, or (None, None) if there is
        neither."""
        node = self.root
        for name in path.split(b"/") if path else ():
            child = node.names.get(name) if node.names else None
            if child is None:
                return self._find_below(relpath(path))
            node = child
        return node, None

    def _find_below(self, path: bytes) -> tuple[Node | None, bytes | None]:
        """Like ``find``, for a checked path that may leave the nodes."""
        node, names = self.root, path.split(b"/")
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

    def put(self, directory: Node, name: bytes, node: Node) -> None:
        """Store a node."""
        assert directory.names is not None
        replaced = directory.names.get(name)
        directory.names[name] = node
        self._touch(directory)
        # Last, because removing a spilled file is the only step that can fail.
        if replaced is not None:
            self.release(replaced)

    def detach(self, path: bytes) -> Node | None:
        """Delete ``path``. Return its node, or None if the buffer had none."""
        directory, name = self.directory(path), last(path)
        assert directory.names is not None
        hides = directory.below is not None and self.below.look(join(directory.below, name)) is not None
        node = directory.names.pop(name, None)
        if hides:
            directory.names[name] = None
        self._touch(directory)
        return node

    def forget(self, path: bytes) -> Node | None:
        """Drop the change at ``path``, which then shows the tree below. Return its node, if it has one."""
        node = self.root
        *above, name = path.split(b"/")
        for step in above:
            child = (node.names or {}).get(step)
            if child is None:
                return None
            node = child
        return node.names.pop(name, None) if node.names else None

    def move(self, old: bytes, new: bytes, entry: Entry) -> None:
        node, target = self.own(old, entry), self.directory(new)
        self.detach(old)
        node.entry = entry._replace(ctime=self._clock())
        self.put(target, last(new), node)

    def directory(self, path: bytes) -> Node:
        """Return the parent directory's node for a checked path; create missing nodes on the way."""
        node = self.root
        for name in path.split(b"/")[:-1]:
            assert node.names is not None
            child = node.names.get(name)
            if child is None:
                assert node.below is not None
                below = join(node.below, name)
                entry = self.below.look(below)
                if entry is None or entry.kind != "directory":
                    raise os_error(errno.ENOENT, path)  # deleted since it was checked
                child = node.names[name] = Node(entry, below)
            node = child
        return node

    def own(self, path: bytes, entry: Entry) -> Node:
        """Return the node at ``path``; create it if missing."""
        directory, name = self.directory(path), last(path)
        assert directory.names is not None
        node = directory.names.get(name)
        if node is None:
            assert directory.below is not None
            node = directory.names[name] = Node(entry, join(directory.below, name))
        return node

    def _touch(self, directory: Node) -> None:
        now = self._clock()
        directory.entry = directory.entry._replace(mtime=now, ctime=now)

    def release(self, node: Node) -> None:
        for _at, below in [(b"", node), *nodes(node)]:
            if below is not None and below.content is not None:
                self._contents.release(below.content)
                below.content = None

    def clear(self) -> None:
        """Drop every change."""
        self.release(self.root)
        self.root = Node(TOP, b"")


# --- the buffer ---

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
