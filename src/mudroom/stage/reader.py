"""How files of mudroom's own are read and understood: anew each time, or by somebody who keeps them
(``file_cache.py``).

What is read is a value that nobody changes: whoever asks may be given the same as somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
V = TypeVar("V")


class FileReader:
    """Keeps nothing."""

    def of(self, path: bytes, read: Callable[[bytes], T]) -> T:
        """``read(path)``; ``read`` says what kind of file it is, and has a name of its own. Raises what that does."""
        return read(path)

    def come_to(self, value: V, what: Callable[[V], T]) -> T:
        """``what(value)`` of a value that ``of`` has given: it depends on nothing else. ``what`` has a name of its own,
        too."""
        return what(value)


ANEW = FileReader()
