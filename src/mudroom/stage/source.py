"""Read a fork's files, wherever they are stored: in one directory, a stack of layers, or a buffer in memory.

A ``Source`` takes paths relative to its root; ``b""`` is the root itself. It never follows a symbolic link, neither at
the end of a path nor on the way: a path through a link has no entry.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

from mudroom.core.system.closing import Closing, Descriptor
from mudroom.core.tree.entry import Entry, from_stat, same_stamp
from mudroom.core.tree.path import show
from mudroom.core.tree.secret import LIMIT, Test, holds
from mudroom.errors import ForkMoved
from mudroom.stage import disk
from mudroom.stage.beneath import directory, entries, look_beneath, open_file, open_layer, open_root
from mudroom.stage.beneath import is_absence as is_absence
from mudroom.typing import Protocol


class Source(Protocol):
    def look(self, path: bytes) -> Entry | None:
        """Return the entry at ``path``, or None if it is missing or a directory on the way is missing or not a
        directory."""

    def names(self, path: bytes) -> dict[bytes, Entry]:
        """Return a directory's entries by name; empty if ``path`` is not a directory."""

    def open(self, path: bytes) -> int:
        """Return a descriptor for reading a regular file. Raise OSError as open(2) does."""


class SourceContent(Protocol):
    """The part of ``Source`` that reads file content."""

    def open(self, path: bytes) -> int:
        """Return a descriptor for reading a regular file. Raise OSError as open(2) does."""


class DirectorySource:
    """A real directory: the project, or a live mount. The caller owns the root's descriptor and closes it."""

    def __init__(self, root: int) -> None:
        self.root = root

    def look(self, path: bytes) -> Entry | None:
        return look_beneath(self.root, path or b".")

    def names(self, path: bytes) -> dict[bytes, Entry]:
        try:
            with directory(self.root, path) as opened:
                return entries(opened)
        except OSError as error:
            if is_absence(error):
                return {}
            raise

    def open(self, path: bytes) -> int:
        return open_file(self.root, path)


class NothingBelow:
    """The tree below a directory that stands alone: it has no entry."""

    def look(self, path: bytes) -> Entry | None:  # noqa: ARG002
        return None

    def names(self, path: bytes) -> dict[bytes, Entry]:  # noqa: ARG002
        return {}

    def open(self, path: bytes) -> int:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class OpenSource(DirectorySource, Closing):
    """A ``DirectorySource`` that owns its descriptor. The owner closes it when no thread reads it any more."""

    def __init__(self, path: bytes, *, is_layer: bool = False) -> None:
        super().__init__(open_layer(path) if is_layer else open_root(path))

    def close(self) -> None:
        if self.root >= 0:
            os.close(self.root)
            self.root = -1


def read_own(path: bytes, limit: int, *, cut: bool = False) -> bytes:
    """Return the content of one of the user's files, or b"" if it is missing or not a regular file. Links are followed,
    because dotfiles are often links. Raise ValueError above ``limit`` bytes; with ``cut`` return the first of them."""
    try:
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_CLOEXEC | disk.O_NONBLOCK)
    except OSError as error:
        if is_absence(error) or isinstance(error, PermissionError):
            return b""
        raise
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(limit + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    if len(data) > limit and not cut:
        raise ValueError(f"it has more than {limit:,} bytes")
    return data


def walk(
    source: Source, path: bytes = b"", ends: Callable[[bytes], bool] = lambda _path: False
) -> Iterator[tuple[bytes, Entry]]:
    """Yield every entry below a directory, a directory before its contents. A directory for which ``ends`` is true is
    not entered."""
    pending = [path]
    while pending:
        at = pending.pop()
        for name, entry in source.names(at).items():
            below = at + b"/" + name if at else name
            yield below, entry
            if entry.kind == "directory" and not ends(below):
                pending.append(below)


def read_all(source: SourceContent, path: bytes, limit: int) -> bytes | None:
    """Return a file's content, or None if it has more than ``limit`` bytes."""
    with Descriptor(source.open(path)) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit:
            return None
        data = disk.read(descriptor, size + 1)
        if len(data) == size:
            return data
        while len(data) <= limit and (more := disk.read(descriptor, 1 << 20)):
            data += more
        return data if len(data) <= limit else None


def is_secret(source: SourceContent, path: bytes, test: Test) -> bool:
    """Return whether the file at ``path`` is a secret by this test. It is if it cannot be read."""
    try:
        return holds(test, read_all(source, path, LIMIT) if test in ("key", "content") else None)
    except OSError:
        return True


def open_recorded(places: Sequence[SourceContent], path: bytes, recorded: Entry) -> int:
    """Return a descriptor for exactly the recorded file, from one of these places. Raise ForkMoved if no place still
    has it at its path.

    The ctime is not compared here; the fingerprint covers it, because a file that was written has another ctime when it
    is at its path again.
    """
    for place in places:
        try:
            descriptor = place.open(path)
        except OSError:
            continue
        now = from_stat(disk.fstat(descriptor))  # type: ignore[arg-type]
        if same_stamp(recorded, now._replace(mode=recorded.mode)):  # in a layer, the file's mode may have more bits
            return descriptor
        os.close(descriptor)
    raise ForkMoved(path, show(path))


class RecordedFiles:
    """Files from the first of these places. A recorded path is opened only if it is still the same file
    (``open_recorded``): a sandbox that exchanges two directories changes no file in them, and could show one and leave
    the other."""

    def __init__(self, places: Sequence[SourceContent], entries: Mapping[bytes, Entry | None]) -> None:
        self._places, self._entries = places, entries

    def open(self, path: bytes) -> int:
        recorded = self._entries.get(path)
        return self._places[0].open(path) if recorded is None else open_recorded(self._places, path, recorded)


def same_as(opened: int, source: SourceContent, path: bytes) -> bool:
    """Return whether an open file has the content of ``path`` in ``source``, and close it. Raise OSError as open(2) and
    read(2) do."""
    with Descriptor(opened), Descriptor(source.open(path)) as other:
        return same_bytes(opened, other)


def same_bytes(descriptor: int, other: int) -> bool:
    """Return whether two open files have the same content from their positions to their ends. The descriptors stay
    open."""
    while True:
        a, b = disk.read(descriptor, 1 << 20), disk.read(other, 1 << 20)
        if a != b:
            return False
        if not a:
            return True
