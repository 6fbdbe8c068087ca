"""What every kind of view offers to the rest: a place to work in, and afterwards the raw differences.

A view is a directory in the vault plus a rule of how it is seen. ``RawDifference`` is what a walk finds; it is not a
change yet (``stage/originals/collection.py`` decides that: a file opened for writing but not written to is a difference
only).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from mudroom.core.confinement.spec import Copy, Overlay
from mudroom.core.tree.entry import Entry
from mudroom.stage.source import Source


class RawDifference(NamedTuple):
    path: bytes
    lower: Entry | None
    """What lies below the fork's writable layer: the base, or a sealed layer over it."""
    staged: Entry | None


class View(Protocol):
    kind: str
    """``overlay`` or ``copy``."""

    @property
    def staged(self) -> tuple[bytes, ...]:
        """Directories in which a staged file lies at its own relative path; the first that has it counts."""

    def prepare(self) -> None:
        """Make it ready for one command. Idempotent."""

    def mount(self) -> Overlay | Copy:
        """How a sandbox shows it."""

    def differences(self, lower: Source) -> Iterator[RawDifference]:
        """Everything in which the writable layer may differ from what lies below it."""
