"""A write buffer's tree of nodes over the tree below.

A directory's node either merges with a directory below (``below`` is its path there) or hides it (``below`` is None). A
deleted name has the value None in its directory's ``names``. Renaming a directory therefore moves a single node,
whatever it contains, and the node goes on reading from the directory's old place.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import name as last
from mudroom.core.tree.path import relpath
from mudroom.stage.buffer.content import BufferedContent, Contents
from mudroom.stage.buffer.files import no_file, os_error, refusal
from mudroom.stage.buffer.node import TOP, Node, join, nodes
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.stage.source import Source


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
