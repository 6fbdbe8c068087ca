"""One path, three sides: what was there (base), what the project has now (ours), what the fork wants (theirs).

Whole entries only; content is compared by the caller and arrives as a fact. The table is the decision:

    theirs \\ ours    as base        as theirs      something else   gone
    ---------------  -------------  -------------  ---------------  ---------------
    changed          take           satisfied      conflict         conflict
    added            take           satisfied      conflict         take
    deleted          take           satisfied      conflict         satisfied

where "as base" needs a base that is known (``Change.original_known``). A conflict is a value: both versions are kept.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from mudroom.core.change import Change
from mudroom.core.entry import Entry, same_stamp

Outcome = Literal["take", "satisfied", "conflict"]


class Decision(NamedTuple):
    outcome: Outcome
    reason: str = ""


class Conflict(NamedTuple):
    """The fork's version was not applied; the project keeps its own. Nothing is lost: the fork still has theirs."""

    path: bytes
    reason: str


TAKE = Decision("take")
SATISFIED = Decision("satisfied")

_REASONS = {
    ("added", "other"): "the project has gained a different one meanwhile",
    ("modified", "other"): "also changed in the project since the command ran",
    ("modified", "gone"): "deleted in the project meanwhile",
    ("deleted", "other"): "changed in the project since the command ran",
}
_UNKNOWN = "edited in the project while the command was running"


def decide(change: Change, ours: Entry | None, *, ours_is_theirs: bool) -> Decision:
    """``ours_is_theirs``: whether project and fork hold the same shape and content at this path now."""
    verb = "added" if change.verb == "renamed" else change.verb
    if ours_is_theirs:
        return SATISFIED
    if change.original_known and same_stamp(change.base, ours):
        return TAKE
    if not change.original_known:
        return Decision("conflict", _UNKNOWN)
    return Decision("conflict", _REASONS[verb, "gone" if ours is None else "other"])
