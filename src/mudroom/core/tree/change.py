"""What a fork changed, as values: one ``Change`` per path, and the ``Changeset`` that is reviewed and applied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import parent

Verb = Literal["added", "modified", "deleted", "renamed"]


class Change(NamedTuple):
    """One path whose staged state differs from the base. A rename is the change of the *new* path; the old path
    has a ``deleted`` change of its own with ``moved_to`` set, which is what makes the two applicable apart."""

    path: bytes
    verb: Verb
    base: Entry | None
    """What the project held when the change was collected; None if nothing."""
    staged: Entry | None
    """What the fork holds; None if deleted."""
    lines_added: int = 0
    lines_removed: int = 0
    binary: bool = False
    flags: tuple[str, ...] = ()
    """``executes-later``, ``mode``, ``type``, ``xattr`` …: what a reviewer should notice (``core/tree/flag.py``)."""
    source: bytes = b""
    """Of a renamed file: the path it had."""
    moved_to: bytes = b""
    """Of a deleted file: the path it was renamed to."""
    link_to: bytes = b""
    """Another path with which the fork has this name share one inode."""
    original_known: bool = True
    """False if the project's file was touched while the command ran: what the command started from is not known."""

    @property
    def entry(self) -> Entry:
        """The staged entry, or that of what was deleted."""
        entry = self.staged or self.base
        assert entry is not None
        return entry


class Remark(NamedTuple):
    """Something that cannot be applied or that the reviewer should know, about one path."""

    path: bytes
    text: str


class Summary(NamedTuple):
    added: int = 0
    modified: int = 0
    deleted: int = 0
    renamed: int = 0
    lines_added: int = 0
    lines_removed: int = 0
    size: int = 0
    """Bytes of the added and modified files as staged."""

    @property
    def files(self) -> int:
        return self.added + self.modified + self.deleted + self.renamed


class Changeset(NamedTuple):
    changes: tuple[Change, ...] = ()
    """Sorted by path, so that a directory precedes what is in it."""
    remarks: tuple[Remark, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)


def listed(changes: Iterable[Change]) -> list[Change]:
    """The changes a person counts: directories only where they are all there is to it, a rename once."""
    holding = {parent(change.path) for change in changes}
    return [c for c in changes if not c.moved_to and (c.entry.kind != "directory" or _bare(c, holding))]


def _bare(change: Change, holding: set[bytes]) -> bool:
    return change.verb == "modified" or change.path not in holding


def summarise(changes: Iterable[Change]) -> Summary:
    counts = {"added": 0, "modified": 0, "deleted": 0, "renamed": 0}
    lines_added = lines_removed = size = 0
    for change in listed(list(changes)):
        counts[change.verb] += 1
        lines_added += change.lines_added
        lines_removed += change.lines_removed
        if change.staged is not None:
            size += change.staged.size
    return Summary(**counts, lines_added=lines_added, lines_removed=lines_removed, size=size)
