"""Where a fork and the project do not go together, and what is decided about it.

A decision is held to what was looked at: all three sides, and whatever somebody else has decided meanwhile.
"""

from __future__ import annotations

import threading
from _blake2 import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mudroom.core.linediff import split_lines
from mudroom.core.mergechoice import resolved, rewritten
from mudroom.core.path import show
from mudroom.core.picture import HEAD, picture_of
from mudroom.reviewing import is_masked_conflict
from mudroom.web import shape
from mudroom.web.endpoint import Call, Endpoint, Refusal, id_of, path_of
from mudroom.web.house import require_at_rest, require_fork
from mudroom.web.region import editable, regions_of, result_of

if TYPE_CHECKING:
    from mudroom.session import Conflicted, Session

DRIFTED = 100
_AGAIN = "look at it again"
_one_at_a_time = threading.Lock()
"""Two tabs that decide about the same: the second is told of the first."""


class StandingQuery(Struct):
    reviewed: str = ""
    """What was looked at."""
    conflicts: bool = False
    """Work out, too, how many there are."""


def standing(call: Call) -> shape.Standing:
    query: StandingQuery = call.query
    with call.house.session(call.path["project"]) as session:
        fork = require_fork(session, call.path["fork"])
        fingerprint = session.fingerprint(fork)
        drift = session.drift(fork)
        rows = [shape.Remark(id_of(one.path), show(one.path), one.text) for one in drift[:DRIFTED]]
        running = session.vault.fork(fork).interrupted is not None
        count = undecided(session, fork) if query.conflicts and not running else None
        return shape.Standing(
            fingerprint, bool(query.reviewed) and query.reviewed != fingerprint, running, len(drift), rows, count
        )


def undecided(session: Session, fork: str) -> int:
    return sum(not one.decided for one in session.conflicts(fork))


def conflicts(call: Call) -> shape.Conflicts:
    with call.house.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        return shape.Conflicts(fork, [_conflict(session, one) for one in session.conflicts(fork)])


class ConflictQuery(Struct):
    file: str


def conflict(call: Call) -> shape.Conflict:
    query: ConflictQuery = call.query
    with call.house.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        found = _found(session.conflicts(fork), path_of(query.file))
        shown = _conflict(session, found)
        if not shown.secret:
            merged = found.merged
            shown.regions = regions_of(merged) if merged is not None else None
            shown.result = result_of(merged, found.result)
        return shown


def _found(known: list[Conflicted], path: bytes) -> Conflicted:
    found = next((one for one in known if one.path == path), None)
    if found is None:
        raise Refusal(404, "not-found", f"{show(path)} is in no conflict (any more)", _AGAIN)
    return found


def _conflict(session: Session, found: Conflicted) -> shape.Conflict:
    secret = is_masked_conflict(session, found)
    merged = found.merged if not secret else None
    return shape.Conflict(
        id_of(found.path),
        show(found.path),
        found.reason,
        found.decided,
        merged.conflicts if merged is not None else None,
        _version(found.base, secret=secret),
        _version(found.ours, secret=secret),
        _version(found.theirs, secret=secret),
        versions_of(found),
        None,
        found.take,
        secret,
    )


def _version(version: Any, *, secret: bool) -> shape.Version:
    entry, content = version.entry, version.content if not secret else None
    if entry is None:
        return shape.Version(shape.Side(exists=False), show(version.path))
    side = shape.Side(
        exists=True,
        type=entry.kind,
        size=entry.size,
        mode=f"{entry.mode:04o}",
        target=show(entry.target) if entry.target else "",
        lines=content.count(b"\n") + (not content.endswith(b"\n")) if content else 0,
        image=picture_of(content[:HEAD], version.path) if content else "",
    )
    return shape.Version(side, show(version.path), known=content is not None or entry.kind != "file")


def versions_of(found: Conflicted) -> str:
    """Of the sides, and behind a dot of what is decided."""
    sides, decision = blake2b(digest_size=16), blake2b(found.decision, digest_size=8)
    for side in (found.base, found.ours, found.theirs):
        sides.update(repr((side.path, side.entry, side.content is None)).encode())
        sides.update(blake2b(side.content or b"").digest())
    return f"{sides.hexdigest()}.{decision.hexdigest() if found.decision else ''}"


# --- deciding ---


def decide(call: Call) -> shape.Decided:
    asked: shape.DecideRequest = call.body
    path = path_of(asked.id)
    with _one_at_a_time, call.house.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        found = _found(session.conflicts(fork), path)
        _require_same(found, asked.versions)
        beside = _decide(session, fork, found, asked)
        known = session.conflicts(fork)
        now = next((one for one in known if one.path == path), None)
        if now is not None and not _same_sides(versions_of(now), asked.versions):  # in this very moment
            session.forget_decision(fork, path)
            raise _moved(path)
        return shape.Decided(
            _conflict(session, now) if now is not None else None,
            sum(not one.decided for one in known),
            show(beside),
        )


def _require_same(found: Conflicted, versions: str) -> None:
    now = versions_of(found)
    if versions == now:
        return
    if _same_sides(versions, now):
        raise Refusal(409, "decided", f"somebody else has decided about {show(found.path)} meanwhile", _AGAIN)
    raise _moved(found.path)


def _same_sides(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


def _moved(path: bytes) -> Refusal:
    return Refusal(409, "moved", f"{show(path)} is not what was looked at any more; nothing was decided", _AGAIN)


def _decide(session: Session, fork: str, found: Conflicted, asked: shape.DecideRequest) -> bytes:
    """Where the fork's file will be, if it is beside the project's; else empty."""
    if asked.take == "undecide":
        if not session.forget_decision(fork, found.path):
            raise Refusal(400, "bad-request", f"nothing is decided about {show(found.path)}")
    elif asked.take == "regions":
        session.decide(fork, found, "content", _content(session, found, asked.regions))
    elif asked.take == "text":
        session.decide(fork, found, "content", _edited(session, found, asked.lines))
    elif asked.take == "both":
        return _both(session, fork, found)
    else:
        session.decide(fork, found, asked.take)
    return b""


def _both(session: Session, fork: str, found: Conflicted) -> bytes:
    """The project's lines, then the fork's, wherever they conflict; of what cannot be merged, both files."""
    if found.merged is not None:
        session.decide(fork, found, "content", resolved(found.merged, ["both"] * found.merged.conflicts))
        return b""
    kinds = {side.entry.kind if side.entry is not None else "" for side in (found.ours, found.theirs)}
    if kinds == {"file"}:
        return session.keep_both(fork, found)
    raise Refusal(400, "bad-request", f"of {show(found.path)} only one can be kept: {found.reason}")


def _content(session: Session, found: Conflicted, choices: list[Any]) -> bytes:
    if found.merged is None or is_masked_conflict(session, found):
        raise Refusal(400, "bad-request", f"{show(found.path)} can only be decided as a whole")
    try:
        return resolved(found.merged, choices)
    except ValueError as error:
        raise Refusal(400, "bad-request", str(error)) from None


def _edited(session: Session, found: Conflicted, lines: list[str]) -> bytes:
    before = found.result if not is_masked_conflict(session, found) else None
    if before is None or editable(before) is None:
        raise Refusal(400, "bad-request", f"{show(found.path)} cannot be edited as a whole", "decide it first")
    try:
        return rewritten(split_lines(before), lines)
    except ValueError as error:
        raise Refusal(400, "bad-request", str(error)) from None


_FORK = "/projects/{project}/forks/{fork}"
ENDPOINTS = (
    Endpoint(
        "GET",
        _FORK + "/standing",
        "How a fork stands to the project as that is now",
        standing,
        shape.Standing,
        query=StandingQuery,
    ),
    Endpoint("GET", _FORK + "/conflicts", "Where a fork and the project conflict", conflicts, shape.Conflicts),
    Endpoint(
        "GET",
        _FORK + "/conflict",
        "One conflict, with all sides of it",
        conflict,
        shape.Conflict,
        query=ConflictQuery,
    ),
    Endpoint(
        "POST", _FORK + "/decide", "Decide a conflict, for the next apply", decide, shape.Decided, shape.DecideRequest
    ),
)
