"""How the files of a fork are read, whatever they lie in: one directory, a stack of layers, a buffer in memory.

A ``Source`` answers for paths relative to its root, ``b""`` being the root itself. It never follows a symbolic link,
neither at the end of a path nor on the way (such a path has nothing at it).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Protocol

from mudroom.core.tree.entry import Entry
from mudroom.stage.beneath import directory, entries, look_beneath, open_file, open_root


class Source(Protocol):
    def look(self, path: bytes) -> Entry | None:
        """The entry at ``path``; None if there is none, or a directory on the way is missing or is not one."""

    def names(self, path: bytes) -> dict[bytes, Entry]:
        """What is in a directory, by name; empty if there is no directory at ``path``."""

    def open(self, path: bytes) -> int:
        """A descriptor of a regular file, for reading. Raises OSError as open(2) does."""


class SourceContent(Protocol):
    """As much of a source as it takes to read a file."""

    def open(self, path: bytes) -> int:
        """A descriptor of a regular file, for reading. Raises OSError as open(2) does."""


class DirectorySource:
    """A real directory: the project, or a live mount. The descriptor of its root is its owner's to close."""

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


class OpenSource(DirectorySource):
    """The same, with a descriptor of its own."""

    def __init__(self, path: bytes) -> None:
        super().__init__(open_root(path))

    def __enter__(self) -> OpenSource:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self.root >= 0:
            os.close(self.root)
            self.root = -1


def is_absence(error: OSError) -> bool:
    """Whether an error of open(2) says that there is nothing at a path: ELOOP is a symbolic link on the way."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def walk(source: Source, path: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
    """Every entry below a directory, a directory before what is in it."""
    pending = [path]
    while pending:
        at = pending.pop()
        for name, entry in source.names(at).items():
            below = at + b"/" + name if at else name
            yield below, entry
            if entry.kind == "directory":
                pending.append(below)


def read_all(source: SourceContent, path: bytes, limit: int) -> bytes | None:
    """The content of a file; None if it has more than ``limit`` bytes."""
    descriptor = source.open(path)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            return None
        data = os.read(descriptor, size + 1)
        while len(data) <= limit and (more := os.read(descriptor, 1 << 20)):
            data += more
        return data if len(data) <= limit else None
    finally:
        os.close(descriptor)


def same_bytes(one: int, other: int) -> bool:
    """Whether two open files hold the same from here to their ends. Closes neither."""
    while True:
        a, b = os.read(one, 1 << 20), os.read(other, 1 << 20)
        if a != b:
            return False
        if not a:
            return True
