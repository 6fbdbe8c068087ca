"""The interface of every view: a place to work in, and afterwards the raw differences.

A view is a directory in the vault plus the way it is shown. ``RawDifference`` is the result of a walk. It is not yet a
change (``stage/originals/collection.py`` decides that): a file that was opened for writing but not written to is only a
difference.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.confinement.spec import Copy, Overlay
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage.source import Source
from mudroom.typing import NamedTuple, Protocol

_DEEPEST = 2_048
"""Directories on a path: the most that PATH_MAX bytes can hold."""
_LONGEST = 128 * 1024
"""Bytes in a path."""
_SHOWN = 60


def require_depth(path: bytes) -> None:
    """Raise MudroomError if a directory lies too deep to be staged. A chain of directories costs its depth squared,
    because each entry holds its path: 5,000 directories with 80-byte names take 1 GB."""
    if len(path) > _LONGEST or (len(path) > 2 * _DEEPEST and path.count(b"/") >= _DEEPEST):
        raise MudroomError(
            f"{show(path[:_SHOWN])}… lies below more than {_DEEPEST:,} directories, or its path has more than "
            f"{_LONGEST:,} bytes: such a tree cannot be staged",
            "nothing was applied; mudroom discard FORK, or remove the tree if it is in the project",
        )


class RawDifference(NamedTuple):
    path: bytes
    lower: Entry | None
    """The entry below the fork's writable layer: from the base, or from a sealed layer over it."""
    staged: Entry | None
    hides: bool = False
    """The writable layer hides the whole tree below at this path. Not a difference by itself: both entries are None."""


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
