"""Deciding conflicts, for the next apply.

A decision is held to what was looked at: all three sides, and whatever somebody else has decided meanwhile.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mudroom.core.merge.diff3 import merge3
from mudroom.core.merge.marker import mergeable
from mudroom.core.merge.resolve_hunks import resolved, rewritten
from mudroom.core.text.linediff import split_lines
from mudroom.core.tree.path import show_path
from mudroom.review.rows import is_masked_conflict
from mudroom.web import shape
from mudroom.web.api.conflict import found_conflict, moved, require_same, same_sides, shown_conflict, versions_of
from mudroom.web.api.endpoint import ApiCall, Endpoint, path_of
from mudroom.web.api.region import editable
from mudroom.web.state.refusal import Refusal
from mudroom.web.state.server_state import require_at_rest

if TYPE_CHECKING:
    from mudroom.session import ForkConflict, Session


def decide(call: ApiCall) -> shape.DecidedShape:
    asked: shape.DecideRequestShape = call.body
    path = path_of(asked.id)
    place = call.path["project"], call.path["fork"]
    # of two tabs that decide about the same the second is told of the first
    with call.server.locks.hold("decide", *place), call.server.session(place[0]) as session:
        fork = require_at_rest(session, call.path["fork"])
        found = found_conflict(session, fork, path)
        require_same(found, asked.versions)
        beside = _decide(session, fork, found, asked)
        now = session.changes.conflict(fork, path)
        if now is not None and not same_sides(versions_of(now), asked.versions):  # in this very moment
            session.changes.forget_decision(fork, path)
            raise moved(path)
        return shape.DecidedShape(shown_conflict(session, now, found) if now is not None else None, show_path(beside))


def _decide(session: Session, fork: str, found: ForkConflict, asked: shape.DecideRequestShape) -> bytes:
    """Where the fork's file will be, if it is beside the project's; else empty."""
    if asked.take == "undecide":
        if not session.changes.forget_decision(fork, found.path):
            raise Refusal(400, "bad-request", f"nothing is decided about {show_path(found.path)}")
    elif asked.take == "regions":
        session.changes.decide(fork, found, "content", _content(session, found, asked.regions))
    elif asked.take == "text":
        session.changes.decide(fork, found, "content", _edited(session, found, asked), edited=True)
    elif asked.take == "both":
        return _both(session, fork, found)
    else:
        session.changes.decide(fork, found, asked.take)
    return b""


def _both(session: Session, fork: str, found: ForkConflict) -> bytes:
    """The project's lines, then the fork's, wherever they conflict; of what cannot be merged, both files."""
    if found.merged is not None:
        session.changes.decide(fork, found, "content", resolved(found.merged, ["both"] * found.merged.conflicts))
        return b""
    kinds = {side.entry.kind if side.entry is not None else "" for side in (found.ours, found.theirs)}
    if kinds == {"file"}:
        return session.changes.keep_both(fork, found)
    raise Refusal(400, "bad-request", f"of {show_path(found.path)} only one can be kept: {found.reason}")


def _content(session: Session, found: ForkConflict, choices: list[Any]) -> bytes:
    if found.merged is None or is_masked_conflict(session, found):
        raise Refusal(400, "bad-request", f"{show_path(found.path)} can only be decided as a whole")
    try:
        return resolved(found.merged, choices)
    except ValueError as error:
        raise Refusal(400, "bad-request", str(error)) from None


def _edited(session: Session, found: ForkConflict, asked: shape.DecideRequestShape) -> bytes:
    before = found.result if not is_masked_conflict(session, found) else None
    if before is None or editable(before) is None:
        raise Refusal(400, "bad-request", f"{show_path(found.path)} cannot be edited as a whole", "decide it first")
    lines = split_lines(before)
    try:
        edited = rewritten(lines, asked.lines)
        begun = rewritten(lines, asked.begun) if asked.begun is not None else before
    except ValueError as error:
        raise Refusal(400, "bad-request", str(error)) from None
    return edited if begun == before else _with_what_came(begun, before, edited)


def _with_what_came(begun: bytes, now: bytes, edited: bytes) -> bytes:
    """An edit of a text that is another one by now: it takes nothing back."""
    reason = mergeable(begun) or mergeable(edited)
    if reason:
        raise Refusal(400, "bad-request", f"the edit cannot be merged with what has come since: {reason}")
    merged = merge3(begun, now, edited)
    if merged.clean:
        return merged.content()
    starts = accumulate((len(chunk.theirs) for chunk in merged.chunks), initial=1)
    first = next(at for at, chunk in zip(starts, merged.chunks, strict=False) if chunk.kind == "conflict")
    error = f"the edit and what has come since do not go together, from line {first} of the edit on"
    raise Refusal(409, "overlaps", error, "nothing was saved")


ENDPOINTS = (
    Endpoint(
        "POST",
        "/projects/{project}/forks/{fork}/decide",
        "Decide a conflict, for the next apply",
        decide,
        shape.DecidedShape,
        shape.DecideRequestShape,
    ),
)
