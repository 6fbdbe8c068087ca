"""Where a fork and the project do not go together, and what is decided about it (by ``resolve.py``)."""

from __future__ import annotations

from _blake2 import blake2b
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from mudroom.core.text.linediff import split_lines
from mudroom.core.text.picture import HEAD, picture_of
from mudroom.core.tree.path import show_path
from mudroom.review.rows import is_masked_conflict
from mudroom.web import shape
from mudroom.web.api.endpoint import ApiCall, Endpoint, id_of, path_of
from mudroom.web.api.region import MOST, regions_of, result_of, shown_lines
from mudroom.web.state.refusal import Refusal
from mudroom.web.state.server_state import require_at_rest, require_fork

if TYPE_CHECKING:
    from mudroom.session import ForkConflict, Session

DRIFTED = 100
_AGAIN = "look at it again"


class StandingQuery(Struct):
    reviewed: str = ""
    """What was looked at."""
    conflicts: bool = False
    """Work out, too, how many there are."""


def standing(call: ApiCall) -> shape.StandingShape:
    query: StandingQuery = call.query
    with call.server.session(call.path["project"]) as session:
        fork = require_fork(session, call.path["fork"])
        fingerprint = session.changes.fingerprint(fork)
        drift = session.changes.drift(fork)
        rows = [shape.RemarkShape(id_of(one.path), show_path(one.path), one.text) for one in drift[:DRIFTED]]
        running = session.vault.fork(fork).interrupted is not None
        count = undecided(session, fork) if query.conflicts and not running else None
        return shape.StandingShape(
            fingerprint, bool(query.reviewed) and query.reviewed != fingerprint, running, len(drift), rows, count
        )


def undecided(session: Session, fork: str) -> int:
    return sum(not decided for decided in session.changes.conflict_paths(fork).values())


def conflicts(call: ApiCall) -> shape.ConflictsShape:
    with call.server.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        rows = session.changes.each_conflict(fork, lambda one: shown_conflict(session, one))
        return shape.ConflictsShape(fork, session.vault.fork(fork).created // 1_000_000, rows)


class ConflictQuery(Struct):
    file: str


def conflict(call: ApiCall) -> shape.ConflictShape:
    query: ConflictQuery = call.query
    with call.server.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        found = found_conflict(session, fork, path_of(query.file))
        merged = found.merged if not is_masked_conflict(session, found) else None
        shown = shown_conflict(session, found)
        if not shown.secret:
            shown.regions = regions_of(merged) if merged is not None else None
            shown.result = result_of(merged if shown.regions is not None else None, found.result)
        return shown


def found_conflict(session: Session, fork: str, path: bytes) -> ForkConflict:
    found = session.changes.conflict(fork, path)
    if found is None:
        raise Refusal(404, "not-found", f"{show_path(path)} is in no conflict (any more)", _AGAIN)
    return found


def shown_conflict(session: Session, found: ForkConflict, before: ForkConflict | None = None) -> shape.ConflictShape:
    """``before``: the same sides, looked at already, so that they need not be merged again."""
    secret = is_masked_conflict(session, found)
    return shape.ConflictShape(
        id_of(found.path),
        show_path(found.path),
        found.reason,
        found.decided,
        (before or found).places if not secret else None,
        _version(found.base, secret=secret),
        _version(found.ours, secret=secret),
        _version(found.theirs, secret=secret),
        versions_of(found),
        None,
        found.take,
        secret,
    )


def _version(version: Any, *, secret: bool) -> shape.VersionShape:
    entry, content = version.entry, version.content if not secret else None
    if entry is None:
        return shape.VersionShape(shape.SideShape(exists=False), show_path(version.path))
    side = shape.SideShape(
        exists=True,
        type=entry.kind,
        size=entry.size,
        mode=f"{entry.mode:04o}",
        target=show_path(entry.target) if entry.target else "",
        lines=content.count(b"\n") + (not content.endswith(b"\n")) if content else 0,
        image=picture_of(content[:HEAD], version.path) if content else "",
    )
    return shape.VersionShape(side, show_path(version.path), known=content is not None or entry.kind != "file")


def versions_of(found: ForkConflict) -> str:
    """Of the sides, and behind a dot of what is decided."""
    sides, decision = blake2b(digest_size=16), blake2b(found.decision, digest_size=8)
    for side in (found.base, found.ours, found.theirs):
        sides.update(repr((side.path, side.entry, side.content is None)).encode())
        sides.update(blake2b(side.content or b"").digest())
    return f"{sides.hexdigest()}.{decision.hexdigest() if found.decision else ''}"


def require_same(found: ForkConflict, versions: str) -> None:
    now = versions_of(found)
    if versions == now:
        return
    if same_sides(versions, now):
        raise Refusal(409, "decided", f"somebody else has decided about {show_path(found.path)} meanwhile", _AGAIN)
    raise moved(found.path)


def same_sides(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


def moved(path: bytes) -> Refusal:
    return Refusal(409, "moved", f"{show_path(path)} is not what was looked at any more; nothing was decided", _AGAIN)


class LinesQuery(Struct):
    file: str
    versions: str
    """Of what was looked at."""
    first: Annotated[int, Meta(ge=1, le=1 << 40)] = 1
    count: Annotated[int, Meta(ge=0, le=MOST)] = MOST


def lines(call: ApiCall) -> shape.TextShape:
    """What is folded is the same on all sides: the project's."""
    query: LinesQuery = call.query
    with call.server.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        found = found_conflict(session, fork, path_of(query.file))
        if is_masked_conflict(session, found) or not found.is_text:
            raise Refusal(400, "bad-request", f"{show_path(found.path)} has no lines that are shown")
        if not same_sides(versions_of(found), query.versions):
            raise moved(found.path)
        all_ = split_lines(found.ours.content or b"")
        wanted = all_[query.first - 1 : query.first - 1 + query.count]
        return shape.TextShape(query.first, len(all_), shown_lines(wanted, query.first))


_FORK = "/projects/{project}/forks/{fork}"
ENDPOINTS = (
    Endpoint(
        "GET",
        _FORK + "/standing",
        "How a fork stands to the project as that is now",
        standing,
        shape.StandingShape,
        query=StandingQuery,
    ),
    Endpoint("GET", _FORK + "/conflicts", "Where a fork and the project conflict", conflicts, shape.ConflictsShape),
    Endpoint(
        "GET",
        _FORK + "/conflict",
        "One conflict, with all sides of it",
        conflict,
        shape.ConflictShape,
        query=ConflictQuery,
    ),
    Endpoint(
        "GET",
        _FORK + "/conflict/lines",
        "Lines of a conflict that nobody has changed",
        lines,
        shape.TextShape,
        query=LinesQuery,
    ),
)
