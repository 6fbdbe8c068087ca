"""A fork's conflicts with the present project: the three versions of each, and the decisions about them.

This module never writes to the project. Each call computes the conflicts again, from the original kept in the fork, the
project's file and the fork's file, so a conflict is never older than these files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property

from mudroom.core.merge.diff3 import MergedText, merge3
from mudroom.core.merge.marker import why_not_mergeable
from mudroom.core.merge.merge import Conflict, merged_mode
from mudroom.core.merge.merge_tree import FileSides
from mudroom.core.merge.resolution_words import Take
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import HELD, Entry, FileHeld, is_untouched
from mudroom.core.tree.landing_form import is_reviewed
from mudroom.core.tree.path import ancestors, show
from mudroom.errors import DecidedMeanwhile, SideMoved, UsageError
from mudroom.stage.source import Source, SourceContent, read_all
from mudroom.typing import Literal, NamedTuple, TypeVar
from mudroom.vault.apply.landing import LandingRequest, prepare, read_record, reconciling, reviewed_contents
from mudroom.vault.conflict.reconciliation import LIMIT, Reconciler
from mudroom.vault.conflict.resolution import (
    Resolution,
    fingerprint,
    is_valid,
    keep_content,
    keep_resolutions,
    load_resolutions,
    read_content,
)
from mudroom.vault.conflict.rule_merge import RuleMerge, command_of, settle
from mudroom.vault.record import ForkRecord
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

T = TypeVar("T")


class ConflictVersion(NamedTuple):
    """A version in a conflict."""

    path: bytes
    entry: Entry | None
    """None if the path is absent or its entry is not known."""
    content: bytes | None
    """A file's content; None if the path is not a file, the file is too large to be merged, or the content is unknown
    or cannot be read."""


class _ConflictFields(NamedTuple):
    path: bytes
    """Path in the fork."""
    reason: str
    base: ConflictVersion
    ours: ConflictVersion
    theirs: ConflictVersion
    decided: bool
    """Whether a decision about exactly these versions is recorded."""
    take: Take | Literal[""] = ""
    """The decision, if ``decided``."""
    decision: bytes = b""
    """Identifies the recorded decision, even an outdated decision. Another decision has another value."""
    written: bytes | None = None
    """The decided content, if ``take`` is ``content``."""
    how: str = ""
    """The rule or program that made the decided content; empty: the user."""


class ForkConflict(_ConflictFields):
    # a subclass, because a NamedTuple has no place for cached properties
    @property
    def result(self) -> bytes | None:
        """The decided content; None if the conflict is undecided, the path is to be deleted, or the content is
        unknown."""
        side = {"ours": self.ours, "theirs": self.theirs}.get(self.take)
        return self.written if side is None else side.content

    @cached_property
    def merged(self) -> MergedText | None:
        """The three texts merged as far as possible; None if they are not mergeable texts. Computed once and kept."""
        return self._merge()

    @property
    def places(self) -> int | None:
        """Number of places where the texts conflict; None as for ``merged``."""
        return self._outline[0]

    @property
    def by_rule(self) -> RuleMerge | None:
        """The text as a rule merges it (``ext/merging/rule.py``), or None if no rule does."""
        return self._outline[1]

    @cached_property
    def remade_by(self) -> str:
        """The command that makes a lock file again (``ext/merging/lock_file.py``); empty if the path is none."""
        return command_of(self.path, self.ours.content, self.theirs.content)

    @property
    def offered(self) -> str:
        """Return what decides it without a person, as the end of a sentence; empty if that is nothing."""
        by_rule = f"merges it: {self.by_rule.words}" if self.by_rule is not None else ""
        return by_rule or (f"makes it again: {self.remade_by}" if self.remade_by else "")

    @cached_property
    def _outline(self) -> tuple[int | None, RuleMerge | None]:
        """``places`` and ``by_rule``, by one merge, which is not kept: lists are long."""
        merged = vars(self).get("merged") or self._merge()
        return (merged.conflicts, settle(self.path, merged)) if merged is not None else (None, None)

    def _merge(self) -> MergedText | None:
        return merge3(*self._texts) if self._texts is not None else None

    @property
    def is_text(self) -> bool:
        """Whether the three versions are mergeable texts. Does not merge them."""
        return self._texts is not None

    @cached_property
    def _texts(self) -> tuple[bytes, bytes, bytes] | None:
        base, ours, theirs = (side.content for side in (self.base, self.ours, self.theirs))
        if self.base.entry is None and self.ours.entry is not None:
            base = b""
        if base is None or ours is None or theirs is None or any(map(why_not_mergeable, (base, ours, theirs))):
            return None
        return base, ours, theirs


def find_conflicts(
    vault: Vault, fork: Fork, paths: Collection[bytes] = (), *, rules: bool = False
) -> list[ForkConflict]:
    """Return all conflicts in walking order, including decided ones. Hold the fork's lock. ``rules``: as in
    ``LandingRequest``.

    Raise UsageError for a path that has no change.
    """
    return each_conflict(vault, fork, lambda conflict: conflict, paths, rules=rules)


def each_conflict(
    vault: Vault,
    fork: Fork,
    make: Callable[[ForkConflict], T],
    paths: Collection[bytes] = (),
    *,
    contents: bool = True,
    rules: bool = False,
) -> list[T]:
    """Return ``make(conflict)`` for each conflict in ``find_conflicts``.

    Only one conflict's contents are in memory at a time: a fork may have any number of conflicts, each as large as
    ``LIMIT``. Without ``contents`` no content is read and kept.
    """
    request = LandingRequest(tuple(paths), rules=rules)
    return _map_conflicts(vault, fork, make, read_record(fork), request, contents=contents)


def find_conflict(vault: Vault, fork: Fork, path: bytes, *, rules: bool = False) -> ForkConflict | None:
    """Return the conflict at ``path``, as in ``find_conflicts``, or None. Hold the fork's lock.

    If the file was edited on both sides, only that file is merged. Otherwise renames and directories elsewhere in the
    fork may matter, so the whole fork is examined.
    """
    record = read_record(fork)
    if _is_plain_edit(path, record.changeset.changes):
        conflicts = _map_conflicts(
            vault,
            fork,
            lambda conflict: conflict,
            record,
            LandingRequest((path,), exact=True, rules=rules),
            contents=True,
        )
        if [(conflict.path, conflict.ours.path) for conflict in conflicts] == [(path, path)] and conflicts[
            0
        ].ours.entry is not None:
            return conflicts[0]
    results = _map_conflicts(
        vault,
        fork,
        lambda conflict: conflict if conflict.path == path else None,
        record,
        LandingRequest(rules=rules),
        contents=True,
    )
    return next((conflict for conflict in results if conflict is not None), None)


def _is_plain_edit(path: bytes, changes: Collection[Change]) -> bool:
    """Whether the path is a file that was only edited, in unchanged directories, and lands without being named."""
    near = {path, *ancestors(path)}
    about = [change for change in changes if change.path in near]
    if len(about) != 1 or about[0].path != path or b".git" in path or b".mudroom" in path:
        return False
    (change,) = about
    is_edit = _is_file(change.base) and _is_file(change.staged) and not (change.moved_to or change.source)
    return is_edit and "protected" not in change.flags


def _map_conflicts(
    vault: Vault,
    fork: Fork,
    make: Callable[[ForkConflict], T],
    record: ForkRecord,
    request: LandingRequest,
    *,
    contents: bool,
) -> list[T]:
    with reconciling(vault, fork, request, record, answered=False) as reconciler:
        plan = prepare(fork, request, reconciler, record)
        with reviewed_contents(fork, record) as staged:
            changes = {change.path: change for change in plan.chosen}
            resolutions = load_resolutions(fork)
            results: list[T] = []
            for conflict in plan.landing.conflicts:
                change = changes[conflict.path]
                if change.moved_to:
                    continue  # the old path of a rename; its new path is in the list
                base_at = conflict.base_at or conflict.path
                base = changes[base_at].base if base_at in changes else change.base
                ours_at = conflict.ours_at or conflict.path
                sides = FileSides(
                    (base_at, base), (ours_at, reconciler.look(ours_at)), (conflict.path, change.staged), conflict.path
                )
                fork_conflict = _make_conflict(conflict, sides, reconciler, staged, resolutions, contents=contents)
                if fork_conflict.take == "content" and contents:
                    fork_conflict = fork_conflict._replace(written=read_content(fork, resolutions[conflict.path]))
                results.append(make(fork_conflict))
                del fork_conflict  # free its contents before the next are read
    return results


def _make_conflict(
    conflict: Conflict,
    sides: FileSides,
    reconciler: Reconciler,
    staged: Source,
    resolutions: Mapping[bytes, Resolution],
    *,
    contents: bool,
) -> ForkConflict:
    (base_at, base), (ours_at, ours), (theirs_at, theirs) = sides[:3]
    resolution, ours_side, theirs_side = resolutions.get(conflict.path), (ours_at, ours), (theirs_at, theirs)
    decided = resolution is not None and is_valid(resolution, resolutions, reconciler, staged, ours_side, theirs_side)
    return ForkConflict(
        conflict.path,
        conflict.reason,
        ConflictVersion(
            base_at, base, reconciler.original(base_at, base, theirs_at) if contents and _is_file(base) else None
        ),
        ConflictVersion(ours_at, ours, _content(reconciler, ours_at) if contents and _is_file(ours) else None),
        ConflictVersion(theirs_at, theirs, _content(staged, theirs_at) if contents and _is_file(theirs) else None),
        decided,
        resolution.take if resolution is not None and decided else "",
        _decision_id(resolution),
        how=resolution.how if resolution is not None and decided else "",
    )


def _content(source: SourceContent, path: bytes) -> bytes | None:
    try:
        return read_all(source, path, LIMIT)
    except (PermissionError, FileHeld):
        return None  # the conflict's reason says so


def _is_file(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "file"


def decide(
    vault: Vault,
    fork: Fork,
    conflict: ForkConflict,
    take: Take,
    content: bytes | None = None,
    *,
    edited: bool = False,
    how: str = "",
    made_from: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Record a decision until the next apply. Hold the fork's lock.

    ``take``: ours (the project's version), theirs (the fork's), content (the given content), delete (remove the path).
    ``edited``: the content is an edited version of the decided content (``conflict.result``) and keeps its permissions.
    ``how``, ``made_from``: as in ``Resolution``.

    Raise UsageError if a side cannot be taken or the project's version cannot be read. Raise SideMoved if a side, and
    DecidedMeanwhile if the decision has changed since ``conflict`` was read: an editor may have been open for long.
    """
    if take == "theirs" and conflict.ours.entry is not None and conflict.theirs.entry is not None:
        directories = {entry.kind == "directory" for entry in (conflict.ours.entry, conflict.theirs.entry)}
        if directories == {True, False}:
            raise UsageError(
                f"{show(conflict.path)} is a directory on one side and none on the other",
                "move it out of the way in the project, then apply again",
            )
    record = read_record(fork)
    with reviewed_contents(fork, record) as staged, reconciling(vault, fork, LandingRequest(), record) as project:
        _require_unmoved(conflict, project, staged)
        try:
            ours = fingerprint(project, conflict.ours.path, conflict.ours.entry)
        except (PermissionError, FileHeld) as error:
            path = show(conflict.ours.path)
            why, hint = "cannot be read: permission denied", f"chmod u+r {path}"
            if isinstance(error, FileHeld):
                why, hint = HELD, "close it there, then decide again"
            raise UsageError(f"{path} {why}", hint) from error
        resolution = Resolution(
            take,
            ours,
            fingerprint(staged, conflict.path, conflict.theirs.entry),
            conflict.ours.path if conflict.ours.path != conflict.path else b"",
            how=how,
            made_from=made_from,
        )
        _require_unmoved(conflict, project, staged)  # again: the sides may have changed while they were read
    resolutions = load_resolutions(fork)
    require_undecided_since(conflict.path, conflict.decision, resolutions)
    if take == "content":
        assert content is not None
        resolution = resolution._replace(
            content=keep_content(fork, content),
            mode=_mode(conflict, resolutions.get(conflict.path) if edited else None),
        )
    keep_resolutions(fork, {**resolutions, conflict.path: resolution})


def require_undecided_since(path: bytes, decision: bytes, resolutions: Mapping[bytes, Resolution]) -> None:
    """Raise DecidedMeanwhile if the recorded decision about ``path`` is not ``decision``."""
    if _decision_id(resolutions.get(path)) != decision:
        raise DecidedMeanwhile(path, show(path))


def _decision_id(resolution: Resolution | None) -> bytes:
    return repr(resolution).encode() if resolution is not None else b""


def _require_unmoved(conflict: ForkConflict, project: Reconciler, staged: Source) -> None:
    ours, theirs = project.look(conflict.ours.path), staged.look(conflict.theirs.path)
    if not (is_untouched(conflict.ours.entry, ours) and is_reviewed(conflict.theirs.entry, theirs)):
        raise SideMoved(conflict.path, show(conflict.path))


def forget(fork: Fork, path: bytes, decision: bytes | None = None) -> bool:
    """Remove a decision. Return whether there was one.

    ``decision``: the expected decision (``ForkConflict.decision``); None removes any. Raise DecidedMeanwhile if the
    recorded decision differs.
    """
    resolutions = load_resolutions(fork)
    if decision is not None:
        require_undecided_since(path, decision, resolutions)
    if resolutions.pop(path, None) is None:
        return False
    keep_resolutions(fork, resolutions)
    return True


def _mode(conflict: ForkConflict, edited: Resolution | None) -> int:
    """Return the permission bits for decided content: from the decision that was ``edited``, else merged, else the
    project's. Set-id and sticky bits are only taken from the project."""
    modes = [side.entry.mode if _is_file(side.entry) and side.entry is not None else None for side in conflict[2:5]]
    base, ours, theirs = modes
    if edited is not None and edited.take != "delete":
        mode = {"ours": ours, "theirs": theirs, "content": edited.mode}[edited.take]
    elif ours is None or theirs is None:
        mode = next((value for value in (ours, theirs, base) if value is not None), None)
    else:
        mode = merged_mode(base, ours, theirs)
    if mode is None:
        mode = ours if ours is not None else 0o644
    return mode & (0o777 | (ours or 0))
