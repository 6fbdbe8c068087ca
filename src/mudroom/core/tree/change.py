"""Values for a fork's changes: one ``Change`` per path, and the ``Changeset`` that is reviewed and applied."""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import parent
from mudroom.typing import Literal, NamedTuple

Verb = Literal["added", "modified", "deleted", "renamed"]


class Change(NamedTuple):
    """A path whose staged state differs from the base. A rename is the change at the *new* path. The old path has its
    own ``deleted`` change with ``moved_to`` set, so that each can be applied without the other."""

    path: bytes
    verb: Verb
    base: Entry | None
    """The project's entry when the change was collected; None if the path did not exist."""
    staged: Entry | None
    """The fork's entry; None if the path is deleted."""
    lines_added: int = 0
    lines_removed: int = 0
    binary: bool = False
    flags: tuple[str, ...] = ()
    """Flags for the reviewer: ``executes-later``, ``mode``, ``type``, ``xattr`` … (``core/tree/flag.py``)."""
    source: bytes = b""
    """The old path if the file was renamed; otherwise empty."""
    moved_to: bytes = b""
    """The new path if this deleted file was renamed; otherwise empty."""
    link_to: bytes = b""
    """Another path in the fork that is a hard link to the same inode; otherwise empty."""
    original_known: bool = True
    """False if the project's file was modified while the command ran: the version that the command read is not
    known."""
    runs: str = ""
    """When the file runs by itself later, in words; empty if it does not (flag ``executes-later``)."""

    @property
    def entry(self) -> Entry:
        """The staged entry, or the base entry if the path is deleted."""
        entry = self.staged or self.base
        assert entry is not None
        return entry

    @property
    def modes(self) -> tuple[int, int] | None:
        """Both modes if they differ and the type is the same; otherwise None."""
        old, new = self.base, self.staged
        if old is None or new is None or old.kind != new.kind or old.mode == new.mode:
            return None
        return old.mode, new.mode


class Remark(NamedTuple):
    """A note for the reviewer about one path, for example that the path cannot be applied."""

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
    """Bytes in the fork's added and modified files."""

    @property
    def files(self) -> int:
        return self.added + self.modified + self.deleted + self.renamed


class Changeset(NamedTuple):
    changes: tuple[Change, ...] = ()
    """Sorted by path, so that a directory precedes its contents."""
    remarks: tuple[Remark, ...] = ()
    hidden: tuple[bytes, ...] = ()
    """Directories that the writable layer has removed or replaced. Commands do not see entries that the user makes
    there later."""

    def __bool__(self) -> bool:
        return bool(self.changes)


def counted_changes(changes: Iterable[Change]) -> list[Change]:
    """Return the changes that are counted for the user. A rename counts once. A directory counts only if its own
    attributes were modified or no change lies directly in it."""
    holding = {parent(change.path) for change in changes}
    return [
        change
        for change in changes
        if not change.moved_to and (change.entry.kind != "directory" or _is_own_change(change, holding))
    ]


def _is_own_change(change: Change, holding: set[bytes]) -> bool:
    return change.verb == "modified" or change.path not in holding


def summarise(changes: Iterable[Change]) -> Summary:
    counts = {"added": 0, "modified": 0, "deleted": 0, "renamed": 0}
    lines_added = lines_removed = size = 0
    for change in counted_changes(list(changes)):
        counts[change.verb] += 1
        lines_added += change.lines_added
        lines_removed += change.lines_removed
        if change.staged is not None:
            size += change.staged.size
    return Summary(**counts, lines_added=lines_added, lines_removed=lines_removed, size=size)
