"""Decide conflicts, for the next apply.

A decision is bound to the reviewed state: all three sides, and any earlier decision.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mudroom.core.merge.diff3 import merge3
from mudroom.core.merge.marker import why_not_mergeable
from mudroom.core.merge.resolve_hunks import resolve_text, rewrite_lines
from mudroom.core.text.linediff import split_lines
from mudroom.core.tree.path import show_path
from mudroom.ext.web import shape
from mudroom.ext.web.api.conflict import (
    are_same_sides,
    changed_refusal,
    require_conflict,
    require_same_versions,
    shown_conflict,
    versions_of,
)
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, path_of
from mudroom.ext.web.api.region import editable
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import require_at_rest

if TYPE_CHECKING:
    from mudroom.session import ForkConflict, Session


def decide(call: ApiCall) -> shape.DecidedShape:
    request: shape.DecideRequestShape = call.body
    path = path_of(request.id)
    key = call.path["project"], call.path["fork"]
    # if two tabs decide at the same time, the second is refused
    with call.server.locks.hold("decide", *key), call.server.session(key[0]) as session:
        fork = require_at_rest(session, call.path["fork"])
        root, current = require_conflict(session, fork, path)
        require_same_versions(current, request.versions)
        beside = _decide(root.session, root.fork, current, request)
        after = root.session.changes.conflict(root.fork, current.path)
        if after is not None and not are_same_sides(
            versions_of(after), request.versions
        ):  # a side has changed just now
            root.session.changes.forget_decision(root.fork, current.path)
            raise changed_refusal(path)
        return shape.DecidedShape(
            shown_conflict(root, after, current) if after is not None else None, show_path(root.outer(beside))
        )


def _decide(session: Session, fork: str, current: ForkConflict, request: shape.DecideRequestShape) -> bytes:
    """Decide. Return the path of the fork's file if it is put beside the project's, else empty."""
    if request.take == "undecide":
        if not session.changes.forget_decision(fork, current.path):
            raise Refusal(400, "bad-request", f"nothing is decided about {show_path(current.path)}")
    elif request.take == "regions":
        session.changes.decide(fork, current, "content", _content(session, current, request.regions))
    elif request.take == "text":
        session.changes.decide(fork, current, "content", _edited(session, current, request), edited=True)
    elif request.take == "rule":
        if current.by_rule is None or session.forks.secrets.hides_conflict(current):
            raise Refusal(400, "bad-request", f"no rule merges {show_path(current.path)}")
        session.changes.decide(fork, current, "content", current.by_rule.content, how=current.by_rule.how)
    elif request.take == "both":
        return _both(session, fork, current)
    else:
        session.changes.decide(fork, current, request.take)
    return b""


def _both(session: Session, fork: str, current: ForkConflict) -> bytes:
    """At each conflict, keep the project's lines, then the fork's. If the files cannot be merged, keep both."""
    if current.merged is not None:
        session.changes.decide(
            fork, current, "content", resolve_text(current.merged, ["both"] * current.merged.conflicts)
        )
        return b""
    kinds = {side.entry.kind if side.entry is not None else "" for side in (current.ours, current.theirs)}
    if kinds == {"file"}:
        return session.changes.keep_both(fork, current)
    raise Refusal(400, "bad-request", f"only one version of {show_path(current.path)} can be kept: {current.reason}")


def _content(session: Session, current: ForkConflict, choices: list[Any]) -> bytes:
    if current.merged is None or session.forks.secrets.hides_conflict(current):
        raise Refusal(400, "bad-request", f"{show_path(current.path)} can only be decided as a whole")
    try:
        return resolve_text(current.merged, choices)
    except ValueError as error:
        raise Refusal(400, "bad-request", str(error)) from None


def _edited(session: Session, current: ForkConflict, request: shape.DecideRequestShape) -> bytes:
    before = current.result if not session.forks.secrets.hides_conflict(current) else None
    if before is None or editable(before) is None:
        raise Refusal(400, "bad-request", f"{show_path(current.path)} cannot be edited as a whole", "decide it first")
    lines = split_lines(before)
    try:
        edited = rewrite_lines(lines, request.lines)
        begun = rewrite_lines(lines, request.begun) if request.begun is not None else before
    except ValueError as error:
        raise Refusal(400, "bad-request", str(error)) from None
    return edited if begun == before else _merge_edit(begun, before, edited)


def _merge_edit(begun: bytes, now: bytes, edited: bytes) -> bytes:
    """Merge an edit with a text that has changed since the edit began, so that it reverts no change."""
    reason = why_not_mergeable(begun) or why_not_mergeable(edited)
    if reason:
        raise Refusal(400, "bad-request", f"the edit cannot be merged with the changes since: {reason}")
    merged = merge3(begun, now, edited)
    if merged.clean:
        return merged.content()
    starts = accumulate((len(chunk.theirs) for chunk in merged.chunks), initial=1)
    first = next(at for at, chunk in zip(starts, merged.chunks, strict=False) if chunk.kind == "conflict")
    error = f"the edit conflicts with changes since, from line {first} of the edit on"
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
