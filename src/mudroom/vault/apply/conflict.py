"""The conflicts of a fork with the project as it is now: all three sides of each, and what is decided about them.

Nothing here writes to the project. A conflict is worked out anew each time from the original that the fork keeps, the
project's file and the fork's; so it is never older than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

from mudroom.core.merge.diff3 import MergedText, merge3
from mudroom.core.merge.marker import why_not_mergeable
from mudroom.core.merge.merge import Conflict, merged_mode
from mudroom.core.merge.merge_tree import FileSides
from mudroom.core.merge.resolution_words import Take
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.core.tree.path import ancestors, show
from mudroom.errors import DecidedMeanwhile, SideMoved, UsageError
from mudroom.stage.layers.union import Union
from mudroom.stage.source import Source, read_all
from mudroom.vault.apply.landing import LandingRequest, prepare, read_record, reconciling
from mudroom.vault.conflict.reconciliation import LIMIT, Reconciler
from mudroom.vault.conflict.resolution import (
    Resolution,
    fingerprint,
    keep_content,
    keep_resolutions,
    load_resolutions,
    read_content,
)
from mudroom.vault.record import ForkRecord
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

T = TypeVar("T")


class ConflictVersion(NamedTuple):
    """One side of a conflict."""

    path: bytes
    entry: Entry | None
    """None: nothing is there, or it is not known what was."""
    content: bytes | None
    """Of a file; None if it is none, is too large to be merged, or is not known."""


class _Known(NamedTuple):
    path: bytes
    """In the fork."""
    reason: str
    base: ConflictVersion
    ours: ConflictVersion
    theirs: ConflictVersion
    decided: bool
    """Whether a decision about these very versions is kept."""
    take: Take | Literal[""] = ""
    """What that is."""
    decision: bytes = b""
    """Of whatever decision there is, even one that does not hold any more: another one has another."""
    written: bytes | None = None
    """With ``take`` ``content``: that."""


class ForkConflict(_Known):
    # apart from its fields: a NamedTuple itself has no place for what is worked out once
    @property
    def result(self) -> bytes | None:
        """What is decided, as the content of the file; None: nothing is, or it is to be none, or one of which the
        content is not here."""
        side = {"ours": self.ours, "theirs": self.theirs}.get(self.take)
        return self.written if side is None else side.content

    @cached_property
    def merged(self) -> MergedText | None:
        """The texts merged as far as they can be; None if they are no texts that can be. Costs once, and is kept."""
        return self._merge()

    @cached_property
    def places(self) -> int | None:
        """At how many places the texts conflict; None as for ``merged``. In a long list no merge is kept for it."""
        merged = vars(self).get("merged") or self._merge()
        return merged.conflicts if merged is not None else None

    def _merge(self) -> MergedText | None:
        return merge3(*self._texts) if self._texts is not None else None

    @property
    def is_text(self) -> bool:
        """Whether they can be merged, without merging them."""
        return self._texts is not None

    @cached_property
    def _texts(self) -> tuple[bytes, bytes, bytes] | None:
        base, ours, theirs = (side.content for side in (self.base, self.ours, self.theirs))
        if self.base.entry is None and self.ours.entry is not None:
            base = b""
        if base is None or ours is None or theirs is None or any(map(why_not_mergeable, (base, ours, theirs))):
            return None
        return base, ours, theirs


def find_conflicts(vault: Vault, fork: Fork, paths: Collection[bytes] = ()) -> list[ForkConflict]:
    """In walking order, those that are decided, too. Hold the fork's lock.

    Raises UsageError for a path that has no change.
    """
    return each_conflict(vault, fork, lambda one: one, paths)


def each_conflict(
    vault: Vault, fork: Fork, make: Callable[[ForkConflict], T], paths: Collection[bytes] = (), *, contents: bool = True
) -> list[T]:
    """What is made of each (``find_conflicts``): of no two of them are the contents in memory at a time. A fork may
    have any number, each as large as can be. Without ``contents`` nothing of them is read to be kept."""
    return _each(vault, fork, make, read_record(fork), LandingRequest(tuple(paths)), contents=contents)


def find_conflict(vault: Vault, fork: Fork, path: bytes) -> ForkConflict | None:
    """The one at this path, as ``find_conflicts`` has it among all; None: there is none. Hold the fork's lock.

    Of a file that was edited on both sides nothing but that file is merged. Of whatever else the rest of the fork may
    say what becomes of it (renames, directories, where the project has it now): then all of it is looked at.
    """
    record = read_record(fork)
    if _stands_alone(path, record.changeset.changes):
        found = _each(vault, fork, lambda one: one, record, LandingRequest((path,), exact=True), contents=True)
        if [(one.path, one.ours.path) for one in found] == [(path, path)] and found[0].ours.entry is not None:
            return found[0]
    every = _each(vault, fork, lambda one: one if one.path == path else None, record, LandingRequest(), contents=True)
    return next((one for one in every if one is not None), None)


def _stands_alone(path: bytes, changes: Collection[Change]) -> bool:
    """Whether it is a file that was edited where it is, in directories that are as they were, and not one of those
    that land only if they are named."""
    near = {path, *ancestors(path)}
    about = [change for change in changes if change.path in near]
    if len(about) != 1 or about[0].path != path or b".git" in path or b".mudroom" in path:
        return False
    (change,) = about
    is_edit = _is_file(change.base) and _is_file(change.staged) and not (change.moved_to or change.source)
    return is_edit and "protected" not in change.flags


def _each(
    vault: Vault,
    fork: Fork,
    make: Callable[[ForkConflict], T],
    record: ForkRecord,
    wanted: LandingRequest,
    *,
    contents: bool,
) -> list[T]:
    with reconciling(vault, fork, wanted, record, answered=False) as reconciler:
        plan = prepare(fork, wanted, reconciler, record)
        with Union(fork.layered, None) as staged:
            changes = {change.path: change for change in plan.chosen}
            known = load_resolutions(fork)
            found: list[T] = []
            for conflict in plan.landing.conflicts:
                change = changes[conflict.path]
                if change.moved_to:
                    continue  # the end of a rename whose other end is in the list
                base_at = conflict.base_at or conflict.path
                base = changes[base_at].base if base_at in changes else change.base
                ours_at = conflict.ours_at or conflict.path
                sides = FileSides(
                    (base_at, base), (ours_at, reconciler.look(ours_at)), (conflict.path, change.staged), conflict.path
                )
                one = _conflicted(conflict, sides, reconciler, staged, known.get(conflict.path), contents=contents)
                if one.take == "content" and contents:
                    one = one._replace(written=read_content(fork, known[conflict.path]))
                found.append(make(one))
                del one  # before the next one's are read
    return found


def _conflicted(
    conflict: Conflict,
    sides: FileSides,
    reconciler: Reconciler,
    staged: Source,
    known: Resolution | None,
    *,
    contents: bool,
) -> ForkConflict:
    (base_at, base), (ours_at, ours), (theirs_at, theirs) = sides[:3]
    decided = known is not None and (known.ours, known.theirs) == (
        fingerprint(reconciler, ours_at, ours),
        fingerprint(staged, theirs_at, theirs),
    )
    return ForkConflict(
        conflict.path,
        conflict.reason,
        ConflictVersion(
            base_at, base, reconciler.original(base_at, base, theirs_at) if contents and _is_file(base) else None
        ),
        ConflictVersion(ours_at, ours, read_all(reconciler, ours_at, LIMIT) if contents and _is_file(ours) else None),
        ConflictVersion(
            theirs_at, theirs, read_all(staged, theirs_at, LIMIT) if contents and _is_file(theirs) else None
        ),
        decided,
        known.take if known is not None and decided else "",
        _told(known),
    )


def _is_file(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "file"


def decide(
    vault: Vault, fork: Fork, conflict: ForkConflict, take: Take, content: bytes | None = None, *, edited: bool = False
) -> None:
    """Keep a decision until the next apply. Hold the fork's lock.

    ``take``: ours (what the project has), theirs, content (which is given), delete (the path is to be gone).
    ``edited``: the content came of what is decided (``conflict.result``), and has the permissions of that. Raises
    UsageError if a side cannot be taken, SideMoved if one is not what was looked at (``conflict``) any more, and
    DecidedMeanwhile if the decision is not: an editor may have been open for long.
    """
    if take == "theirs" and conflict.ours.entry is not None and conflict.theirs.entry is not None:
        directories = {entry.kind == "directory" for entry in (conflict.ours.entry, conflict.theirs.entry)}
        if directories == {True, False}:
            raise UsageError(
                f"{show(conflict.path)} is a directory on one side and none on the other",
                "move one of them out of the way in the project, then apply again",
            )
    with Union(fork.layered, None) as staged, reconciling(vault, fork, LandingRequest(), read_record(fork)) as project:
        _require_unmoved(conflict, project, staged)
        resolution = Resolution(
            take,
            fingerprint(project, conflict.ours.path, conflict.ours.entry),
            fingerprint(staged, conflict.path, conflict.theirs.entry),
            conflict.ours.path if conflict.ours.path != conflict.path else b"",
        )
        _require_unmoved(conflict, project, staged)  # once more: what came in between would be decided about
    known = load_resolutions(fork)
    require_undecided_since(conflict.path, conflict.decision, known)
    if take == "content":
        assert content is not None
        resolution = resolution._replace(
            content=keep_content(fork, content), mode=_mode(conflict, known.get(conflict.path) if edited else None)
        )
    keep_resolutions(fork, {**known, conflict.path: resolution})


def require_undecided_since(path: bytes, decision: bytes, known: Mapping[bytes, Resolution]) -> None:
    """That nobody has decided otherwise since ``decision`` was all there was."""
    if _told(known.get(path)) != decision:
        raise DecidedMeanwhile(path, show(path))


def _told(known: Resolution | None) -> bytes:
    return repr(known).encode() if known is not None else b""


def _require_unmoved(conflict: ForkConflict, project: Reconciler, staged: Source) -> None:
    ours, theirs = project.look(conflict.ours.path), staged.look(conflict.theirs.path)
    if not (same_stamp(conflict.ours.entry, ours) and same_stamp(conflict.theirs.entry, theirs)):
        raise SideMoved(conflict.path, show(conflict.path))


def forget(fork: Fork, path: bytes, decision: bytes | None = None) -> bool:
    """Take a decision back: the one that was looked at (``ForkConflict.decision``; None: whatever it is). Whether there
    was one. Raises DecidedMeanwhile."""
    known = load_resolutions(fork)
    if decision is not None:
        require_undecided_since(path, decision, known)
    if known.pop(path, None) is None:
        return False
    keep_resolutions(fork, known)
    return True


def _mode(conflict: ForkConflict, edited: Resolution | None) -> int:
    """Permission bits of what is decided by content: those of what was ``edited`` for it, or merged, else the
    project's. What lets a file act as its owner is only taken over from the project's."""
    modes = [side.entry.mode if _is_file(side.entry) and side.entry is not None else None for side in conflict[2:5]]
    base, ours, theirs = modes
    if edited is not None and edited.take != "delete":
        found = {"ours": ours, "theirs": theirs, "content": edited.mode}[edited.take]
    elif ours is None or theirs is None:
        found = next((mode for mode in (ours, theirs, base) if mode is not None), None)
    else:
        found = merged_mode(base, ours, theirs)
    if found is None:
        found = ours if ours is not None else 0o644
    return found & (0o777 | (ours or 0))
