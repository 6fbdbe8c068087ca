"""Merge at one path, with three sides: the original (base), the project now (ours), and the fork (theirs).

A table decides whole entries. The caller compares file contents and passes the result. A side's *delta* is its change
to the base:

    same      unchanged                   content   other content or link target (perhaps another mode, too)
    mode      other permissions only      kind      a file became a directory, a link a file …
    xattr     other user xattrs only      gone      removed
    new       the base has no such path
    doubt     the file's times were changed, and its content at the base is not known (only ours)

    theirs \\ ours   same   mode       content    kind       gone       new        doubt
    --------------  -----  ---------  ---------  ---------  ---------  ---------  ---------
    mode            take   conflict   combine    conflict   conflict   -          conflict
    xattr           take   conflict   conflict   conflict   conflict   -          conflict
    content         take   combine    combine    conflict   conflict   -          conflict
    kind            take   conflict   conflict   conflict   conflict   -          conflict
    gone            take   conflict   conflict   conflict   satisfied  -          conflict
    new             take   -          -          -          -          conflict   -

If both sides made the same change, or both created a directory, the outcome is ``satisfied``. ``combine``: permissions
and content are merged separately (``merged_mode``, ``core/merge/diff3.py``), which can still conflict. If the original
is not known (``Change.original_known``), every other case is a conflict. A conflict is a value: all sides are kept.
"""

from __future__ import annotations

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.typing import Literal, NamedTuple

Delta = Literal["same", "mode", "xattr", "content", "kind", "gone", "new", "doubt"]
Outcome = Literal["take", "satisfied", "combine", "conflict"]


class MergeDecision(NamedTuple):
    outcome: Outcome
    reason: str = ""


class Conflict(NamedTuple):
    """A path whose fork version was not applied. The project keeps its version, and the fork keeps the other."""

    path: bytes
    reason: str
    base_at: bytes = b""
    """The original's path if the fork has renamed the file; otherwise empty."""
    ours_at: bytes = b""
    """Path at which the project has its version, if it is another path; otherwise empty."""


class PartialChoice(NamedTuple):
    """The selected part when a file is not applied as a whole."""

    content: bytes
    mode: int
    """Permission bits."""


class Combined(NamedTuple):
    """The merge result for a path that both sides changed."""

    entry: Entry | None
    """The resulting entry: the merged file, or the fork's own; None if there is a conflict."""
    name: str = ""
    """Name under which the merged content is stored until it is applied; empty for the fork's own file."""
    reason: str = ""
    """Reason for the conflict."""


TAKE = MergeDecision("take")
SATISFIED = MergeDecision("satisfied")
COMBINE = MergeDecision("combine")

_GONE = "deleted in the project meanwhile"
_KIND = "replaced in the project by an entry of another kind"
_EDITED = "also changed in the project since the command ran"
_MODE = "its permissions were changed in the project, too"
_NEW = "also created in the project, but different"
_DELETED = "changed in the project since the command ran"
_DOUBT = "its times have changed in the project since the command ran, and its earlier content is not known"
UNKNOWN = "edited in the project while the command was running"
BINARY = "also changed in the project, and cannot be merged"


def _conflict(reason: str) -> MergeDecision:
    return MergeDecision("conflict", reason)


_THEIRS: tuple[Delta, ...] = ("mode", "xattr", "content", "kind", "gone")
"""A fork's possible changes to a path that the base has."""

TABLE: dict[tuple[Delta, Delta], MergeDecision] = {
    ("mode", "same"): TAKE,
    ("mode", "mode"): _conflict(_MODE),
    ("mode", "content"): COMBINE,
    ("mode", "kind"): _conflict(_KIND),
    ("mode", "gone"): _conflict(_GONE),
    ("xattr", "same"): TAKE,
    ("xattr", "mode"): _conflict(_EDITED),
    ("xattr", "content"): _conflict(_EDITED),
    ("xattr", "kind"): _conflict(_KIND),
    ("xattr", "gone"): _conflict(_GONE),
    ("content", "same"): TAKE,
    ("content", "mode"): COMBINE,
    ("content", "content"): COMBINE,
    ("content", "kind"): _conflict(_KIND),
    ("content", "gone"): _conflict(_GONE),
    ("kind", "same"): TAKE,
    ("kind", "mode"): _conflict(_EDITED),
    ("kind", "content"): _conflict(_EDITED),
    ("kind", "kind"): _conflict(_KIND),
    ("kind", "gone"): _conflict(_GONE),
    ("gone", "same"): TAKE,
    ("gone", "mode"): _conflict(_DELETED),
    ("gone", "content"): _conflict(_DELETED),
    ("gone", "kind"): _conflict(_DELETED),
    ("gone", "gone"): SATISFIED,
    **{(theirs, "doubt"): _conflict(_DOUBT) for theirs in _THEIRS},
    ("new", "same"): TAKE,
    ("new", "new"): _conflict(_NEW),
}


def decide(change: Change, ours: Entry | None, delta: Delta, *, ours_is_theirs: bool) -> MergeDecision:
    """Return the outcome for one path. ``delta``: the project's change to the base. ``ours_is_theirs``: project and
    fork have equal shape and content at this path now."""
    if ours_is_theirs or _both_directories(change, ours):
        return SATISFIED
    if not change.original_known:
        return _conflict(UNKNOWN)
    return TABLE[theirs_delta(change), delta]


def _both_directories(change: Change, ours: Entry | None) -> bool:
    """Return whether both sides created this directory. The project's permissions are kept."""
    return change.base is None and _is_directory(change.staged) and _is_directory(ours)


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "directory"


def theirs_delta(change: Change) -> Delta:
    """Return the fork's change to the base."""
    if change.base is None:
        return "new"
    if change.staged is None:
        return "gone"
    return _delta_of(change.base, change.staged, content="content" in change.flags, xattr="xattr" in change.flags)


def delta_of(base: Entry | None, ours: Entry | None, *, content: bool) -> Delta:
    """Return the project's change to the base. ``content``: the file's content differs."""
    if base is None:
        return "same" if ours is None else "new"
    return "gone" if ours is None else _delta_of(base, ours, content=content, xattr=False)


def _delta_of(base: Entry, side: Entry, *, content: bool, xattr: bool) -> Delta:
    if base.kind != side.kind:
        return "kind"
    if base.target != side.target or content:
        return "content"
    if base.mode != side.mode:
        return "mode"
    return "xattr" if xattr else "same"


def combine_modes(base: int, ours: int, theirs: int) -> int | None:
    """Return a file's merged permission bits, or None if the two sides changed them differently."""
    if base in (theirs, ours) or ours == theirs:
        return ours if theirs == base else theirs
    return None


def merged_mode(base: int | None, ours: int, theirs: int) -> int | None:
    """Merge the permission bits of a fork's file into the project's. Without a base, return the project's bits. A merge
    never adds set-id or sticky bits: the project's file keeps its own, unless the fork's has lost them."""
    if base is None:
        return ours
    merged = combine_modes(base & 0o777, ours & 0o777, theirs & 0o777)
    return None if merged is None else merged | (ours & 0o7000 & ~(base & ~theirs))
