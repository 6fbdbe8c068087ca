"""A write buffer's nodes: a tree with the changed names and the directories on the way to them."""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.tree.entry import Entry
from mudroom.stage.buffer.content import BufferedContent


class Node:
    """One changed name, or a directory on the way to one."""

    __slots__ = ("below", "changed", "content", "entry", "names")

    def __init__(self, entry: Entry, below: bytes | None = None, content: BufferedContent | None = None) -> None:
        self.entry = entry
        self.below = below
        """Path in the tree below: the directory to merge with, or the file that has the content."""
        self.content = content
        self.names: dict[bytes, Node | None] | None = {} if entry.kind == "directory" else None
        """For a directory: the entries that differ from below; None for a deleted name."""
        self.changed = False
        """Whether its mode or time was set."""


TOP = Entry("directory", 0, 0, b"", 0, 0, 1, 0, 0, 0, 0)


def nodes(top: Node) -> Iterator[tuple[bytes, Node | None]]:
    """Yield everything below a node, a directory before its contents."""
    pending = [(b"", top)]
    while pending:
        above, directory = pending.pop()
        for name, node in (directory.names or {}).items():
            at = join(above, name)
            yield at, node
            if node is not None and node.names:
                pending.append((at, node))


def join(above: bytes, name: bytes) -> bytes:
    return above + b"/" + name if above else name
