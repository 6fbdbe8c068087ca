"""Read and parse mudroom's own files: anew each time, or through a cache (``file_cache.py``).

A parsed value must not be modified: several callers may share it.
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.typing import TypeVar

T = TypeVar("T")
V = TypeVar("V")


class FileReader:
    """Reads the file at each call, without a cache."""

    def of(self, path: bytes, read: Callable[[bytes], T]) -> T:
        """Return ``read(path)``. ``read`` identifies the file's type, so it must be a named function. Its exceptions
        are raised."""
        return read(path)

    def derive(self, value: V, derive: Callable[[V], T]) -> T:
        """Return ``derive(value)``, for a value that ``of`` has returned. ``derive`` must be a named function that
        depends only on the value."""
        return derive(value)


ANEW = FileReader()
