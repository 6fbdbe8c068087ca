"""What every kind of view offers to the rest: a place to work in, and afterwards the raw differences.

A view is a directory in the vault plus a rule of how it is seen. ``Difference`` is what a walk finds; it is not a
change yet (``stage/collect.py`` decides that: a file opened for writing but not written to is a difference only).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from mudroom.core.entry import Entry
from mudroom.core.spec import Copy, Overlay


class Difference(NamedTuple):
    path: bytes
    base: Entry | None
    staged: Entry | None


class View(Protocol):
    kind: str
    """``overlay`` or ``copy``."""

    @property
    def content(self) -> bytes:
        """The directory in which a staged file lies at its own relative path."""

    def prepare(self, exclude: frozenset[bytes] = frozenset()) -> None:
        """Make it ready for one command. Idempotent."""

    def mount(self) -> Overlay | Copy:
        """How a sandbox shows it."""

    def differences(self, base: int, known: Mapping[bytes, Entry | None]) -> Iterator[Difference]:
        """Everything that may differ from the project, open at ``base``. ``known``: originals recorded earlier."""
