"""The interface of every view: a place to work in, and afterwards the raw differences.

A view is a directory in the vault plus the way it is shown. ``RawDifference`` is the result of a walk. It is not yet a
change (``stage/originals/collection.py`` decides that): a file that was opened for writing but not written to is only a
difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from mudroom.core.confinement.spec import Copy, Overlay
from mudroom.core.tree.entry import Entry
from mudroom.stage.source import Source
from mudroom.typing import NamedTuple, Protocol

Attributes = Mapping[str, bytes]
NO_ATTRIBUTES: Attributes = MappingProxyType({})
_DEEPEST = 2_048
"""Directories on a path: the most that PATH_MAX bytes can hold."""
_LONGEST = 32 * 1024
"""Bytes in a path."""
TOO_DEEP = (
    f"holds more than {_DEEPEST:,} nested directories, or a path of more than {_LONGEST:,} bytes: deeper directories "
    "are not read, and "
)


def is_too_deep(path: bytes) -> bool:
    """Return whether the directory at ``path`` lies too deep to be staged. A chain of directories costs its depth
    squared, because each entry holds its path: 5,000 directories with 80-byte names take 1 GB."""
    return len(path) > _LONGEST or (len(path) > 2 * _DEEPEST and path.count(b"/") >= _DEEPEST)


class RawDifference(NamedTuple):
    path: bytes
    lower: Entry | None
    """The entry below the fork's writable layer: from the base, or from a sealed layer over it."""
    staged: Entry | None
    hides: bool = False
    """The writable layer hides the whole tree below at this path. Not a difference by itself: both entries are None."""
    too_deep: bool = False
    """A directory in ``path`` lies too deep, and is left out of the walk. Not a difference by itself, either."""
    left: Attributes = NO_ATTRIBUTES
    """The staged entry's attributes that do not land."""


class View(Protocol):
    kind: str
    """``overlay`` or ``copy``."""

    @property
    def staged(self) -> tuple[bytes, ...]:
        """Directories that may contain a staged file at its own relative path; the first that has it wins."""

    def prepare(self) -> None:
        """Prepare the view for one command. Idempotent."""

    def mount(self) -> Overlay | Copy:
        """Return how a sandbox mounts the view."""

    def differences(self, lower: Source) -> Iterator[RawDifference]:
        """Yield every path at which the writable layer may differ from ``lower``, the tree below it."""
