"""One path, three sides: what was there (base), what the project has now (ours), what the fork wants (theirs).

Whole entries are decided by a table; whether two files hold the same is compared by the caller and arrives as a fact.
What each side has done to the base is its *delta*:

    same      nothing                     content   other content or link target (perhaps another mode, too)
    mode      other permissions only      kind      a file became a directory, a link a file …
    xattr     other user xattrs only      gone      removed
    new       there was nothing before

    theirs \\ ours   same   mode       content    kind       gone       new
    --------------  -----  ---------  ---------  ---------  ---------  ---------
    mode            take   conflict   combine    conflict   conflict   -
    xattr           take   conflict   conflict   conflict   conflict   -
    content         take   combine    combine    conflict   conflict   -
    kind            take   conflict   conflict   conflict   conflict   -
    gone            take   conflict   conflict   conflict   satisfied  -
    new             take   -          -          -          -          conflict

and where both sides made the same of it, or both made a directory, that is ``satisfied``. ``combine``: permissions
and content are merged each by itself (``merged_mode``, ``core/merge/diff3.py``), which may yet be a conflict. An
original that is not known (``Change.original_known``) makes everything else a conflict. A conflict is a value: all
sides are kept.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry

Delta = Literal["same", "mode", "xattr", "content", "kind", "gone", "new"]
Outcome = Literal["take", "satisfied", "combine", "conflict"]


class MergeDecision(NamedTuple):
    outcome: Outcome
    reason: str = ""


class Conflict(NamedTuple):
    """The fork's version was not applied; the project keeps its own. Nothing is lost: the fork still has theirs."""

    path: bytes
    reason: str
    base_at: bytes = b""
    """Where the original was, if at another path: the fork has renamed it."""
    ours_at: bytes = b""
    """Where the project has its version, if at another path."""


class PartialChoice(NamedTuple):
    """What is wanted of a file that is not wanted whole."""

    content: bytes
    mode: int
    """Permission bits."""


class Combined(NamedTuple):
    """What became of one path that both sides have changed."""

    entry: Entry | None
    """What the project is to hold: the merged file, or the fork's own. None: there is a conflict."""
    name: str = ""
    """What the merged content is kept under until it lands; empty: it is the fork's own file."""
    reason: str = ""
    """Of the conflict."""


TAKE = MergeDecision("take")
SATISFIED = MergeDecision("satisfied")
COMBINE = MergeDecision("combine")

_GONE = "deleted in the project meanwhile"
_KIND = "the project has made something else of it meanwhile"
_EDITED = "also changed in the project since the command ran"
_MODE = "its permissions were changed in the project, too"
_NEW = "the project has gained a different one meanwhile"
_DELETED = "changed in the project since the command ran"
UNKNOWN = "edited in the project while the command was running"
BINARY = "also changed in the project, and cannot be merged"


def _conflict(reason: str) -> MergeDecision:
    return MergeDecision("conflict", reason)


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
    ("new", "same"): TAKE,
    ("new", "new"): _conflict(_NEW),
}


def decide(change: Change, ours: Entry | None, delta: Delta, *, ours_is_theirs: bool) -> MergeDecision:
    """``delta``: what the project has made of the base. ``ours_is_theirs``: whether project and fork hold the same
    shape and content at this path now."""
    if ours_is_theirs or _both_directories(change, ours):
        return SATISFIED
    if not change.original_known:
        return _conflict(UNKNOWN)
    return TABLE[theirs_delta(change), delta]


def _both_directories(change: Change, ours: Entry | None) -> bool:
    """Whether both sides made a directory where there was none. Its permissions are the project's."""
    return change.base is None and _is_directory(change.staged) and _is_directory(ours)


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "directory"


def theirs_delta(change: Change) -> Delta:
    """What the fork has made of the base."""
    if change.base is None:
        return "new"
    if change.staged is None:
        return "gone"
    return _delta_of(change.base, change.staged, content="content" in change.flags, xattr="xattr" in change.flags)


def delta_of(base: Entry | None, ours: Entry | None, *, content: bool) -> Delta:
    """What the project has made of the base. ``content``: whether a file has other content."""
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
    """Permission bits of a file that both sides changed; None if both changed them, in different ways."""
    if base in (theirs, ours) or ours == theirs:
        return ours if theirs == base else theirs
    return None


def merged_mode(base: int | None, ours: int, theirs: int) -> int | None:
    """``combine_modes`` of a fork's file with the project's. Without a base it is the project's; and what lets a file
    act as its owner (setuid, setgid), or is sticky, comes of no merge: only the project's own file may have it."""
    if base is None:
        return ours
    own = 0o777 | ours
    return combine_modes(base & own, ours, theirs & own)
