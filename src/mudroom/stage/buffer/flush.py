"""Write a buffer to disk: first read all content that the buffer still takes from below, then write all changes."""

from __future__ import annotations

from mudroom.core.system.closing import Descriptor
from mudroom.stage.buffer.content import Contents
from mudroom.stage.buffer.node import Node, join, nodes
from mudroom.typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mudroom.stage.source import Source


class FlushTarget(Protocol):
    """A buffer's destination, a layer or a real directory (``LayerWriter``).

    Writing a path replaces everything at that path. The parent directory exists in the target or in the tree below it.
    """

    def file(self, path: bytes, source: int, *, mode: int, mtime: int | None = None, xattrs: bool = False) -> None: ...
    def data(self, path: bytes, content: bytes, *, mode: int, mtime: int | None = None) -> None: ...
    def symlink(self, path: bytes, target: bytes) -> None: ...
    def fifo(self, path: bytes, mode: int) -> None: ...
    def whiteout(self, path: bytes) -> None: ...

    def directory(self, path: bytes, mode: int) -> None:
        """Set the mode of a directory and keep its contents; create it if missing."""

    def new_directory(self, path: bytes, mode: int) -> None:
        """Create an empty directory, and replace any existing entry."""

    def finish(self) -> None:
        """Set the modes of directories that forbid writing into them. Call it after all writes and after a failure."""


def take_in(root: Node, below: Source, contents: Contents) -> list[bytes]:
    """Read all content that the target might overwrite. A directory that is not at its original path becomes a new one.
    Return the paths that cannot be read."""
    lost: list[bytes] = []
    pending = [(b"", root, True)]
    while pending:
        above, directory, in_place = pending.pop()
        assert directory.names is not None
        for name, node in list(directory.names.items()):
            at = join(above, name)
            if node is not None and node.names is not None:
                stays = in_place and node.below == at and _is_directory(below, at)
                if not stays:
                    _unfold(node, below)
                pending.append((at, node, stays))
            elif node is not None and not _take(node, below, contents):
                lost.append(at)
    return lost


def _is_directory(below: Source, path: bytes) -> bool:
    entry = below.look(path)
    return entry is not None and entry.kind == "directory"


def _unfold(node: Node, below: Source) -> None:
    """Create nodes for all entries that a directory shows from below."""
    assert node.names is not None
    if node.below is not None:
        for name, entry in below.names(node.below).items():
            node.names.setdefault(name, Node(entry, join(node.below, name)))
    node.below = None


def _take(node: Node, below: Source, contents: Contents) -> bool:
    """Read a file's content into the buffer. Return False if it is not available."""
    if node.entry.kind in ("socket", "device"):
        return False
    if node.entry.kind != "file" or node.content is not None:
        return True
    assert node.below is not None
    try:
        descriptor = below.open(node.below)
    except (FileNotFoundError, NotADirectoryError):
        return False
    node.content = contents.take(descriptor)
    node.entry = node.entry._replace(size=node.content.size)
    return True


def write_out(root: Node, contents: Contents, writer: FlushTarget) -> None:
    """Write everything that differs, a directory before its contents."""
    modes: list[tuple[bytes, int]] = []
    for at, node in nodes(root):
        if node is None:
            writer.whiteout(at)
        elif node.names is None:
            _write_one(writer, contents, at, node)
        else:
            mode = node.entry.mode
            closed = mode & 0o700 != 0o700  # it gets its mode after its contents are written
            if node.below is None:
                writer.new_directory(at, mode | 0o700)
            elif closed and node.names:
                writer.directory(at, mode | 0o700)
            if closed or (node.changed and node.below is not None):
                modes.append((at, mode))
    for at, mode in reversed(modes):
        writer.directory(at, mode)


def _write_one(writer: FlushTarget, contents: Contents, at: bytes, node: Node) -> None:
    entry, content = node.entry, node.content
    if entry.kind == "symlink":
        writer.symlink(at, entry.target)
    elif entry.kind == "fifo":
        writer.fifo(at, entry.mode)
    elif content is None:  # already among the lost
        writer.whiteout(at)
    elif content.data is not None:
        writer.data(at, content.data, mode=entry.mode, mtime=entry.mtime)
    else:
        with Descriptor(contents.open(content)) as descriptor:
            writer.file(at, descriptor, mode=entry.mode, mtime=entry.mtime)
