"""Conflicts between a fork and the project, and their decisions (made by ``resolve.py``)."""

from __future__ import annotations

from _blake2 import blake2b
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from mudroom.core.text.linediff import split_lines
from mudroom.core.tree.path import show_path
from mudroom.ext.review.roots import ReviewRoot, drift_of, root_of, roots_of
from mudroom.ext.review.rows import IMAGE_HEAD, picture_of
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, id_of, path_of
from mudroom.ext.web.api.region import MOST, regions_of, result_of, shown_lines
from mudroom.ext.web.api.review import undecided_paths
from mudroom.ext.web.state.refusal import Refusal, refusing_missing
from mudroom.ext.web.state.server_state import require_at_rest, require_fork

if TYPE_CHECKING:
    from mudroom.session import ForkConflict, Session

DRIFTED = 100
_AGAIN = "look at it again"


class StandingQuery(Struct):
    reviewed: str = ""
    """The reviewed state's fingerprint."""
    conflicts: bool = False
    """Count the conflicts, too."""


def standing(call: ApiCall) -> shape.StandingShape:
    query: StandingQuery = call.query
    with call.server.session(call.path["project"]) as session:
        fork = require_fork(session, call.path["fork"])
        fingerprint = session.changes.whole_fingerprint(fork, session.changes.fingerprint(fork))
        drift = drift_of(session, fork)
        rows = [
            shape.RemarkShape(id_of(remark.path), show_path(remark.path), remark.text) for remark in drift[:DRIFTED]
        ]
        running = session.vault.fork(fork).interrupted is not None
        count = len(undecided_paths(session, fork)) if query.conflicts and not running else None
        return shape.StandingShape(
            fingerprint, bool(query.reviewed) and query.reviewed != fingerprint, running, len(drift), rows, count
        )


def conflicts(call: ApiCall) -> shape.ConflictsShape:
    with call.server.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        rows = [row for root in roots_of(session, fork) for row in _rows(root)]
        return shape.ConflictsShape(fork, session.vault.fork(fork).created // 1_000_000, rows)


def _rows(root: ReviewRoot) -> list[shape.ConflictShape]:
    return root.session.changes.each_conflict(root.fork, lambda each: shown_conflict(root, each))


class ConflictQuery(Struct):
    file: str


def conflict(call: ApiCall) -> shape.ConflictShape:
    query: ConflictQuery = call.query
    with call.server.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        root, current = require_conflict(session, fork, path_of(query.file))
        merged = current.merged if not root.session.forks.secrets.hides_conflict(current) else None
        shown = shown_conflict(root, current)
        if not shown.secret:
            shown.regions = regions_of(merged) if merged is not None else None
            shown.result = result_of(merged if shown.regions is not None else None, current.result)
        return shown


def require_conflict(session: Session, fork: str, path: bytes) -> tuple[ReviewRoot, ForkConflict]:
    """Return the conflict at a path of the review, with its project's paths, and that project."""
    with refusing_missing():
        root = root_of(session, fork, path)
    current = root.session.changes.conflict(root.fork, root.inner(path))
    if current is None:
        raise Refusal(404, "not-found", f"{show_path(path)} has no conflict (any more)", _AGAIN)
    return root, current


def shown_conflict(root: ReviewRoot, current: ForkConflict, before: ForkConflict | None = None) -> shape.ConflictShape:
    """Return a conflict for sending. ``before``: a conflict with the same sides that is already merged, to avoid
    merging again."""
    secret = root.session.forks.secrets.hides_conflict(current)
    path = root.outer(current.path)
    by_rule = (before or current).by_rule if not secret else None
    return shape.ConflictShape(
        id_of(path),
        show_path(path),
        current.reason,
        current.decided,
        (before or current).places if not secret else None,
        _version(root, current.base, secret=secret),
        _version(root, current.ours, secret=secret),
        _version(root, current.theirs, secret=secret),
        versions_of(current),
        None,
        current.take,
        by_rule.words if by_rule is not None else "",
        secret,
        how=current.how,
        command=current.remade_by if not secret else "",
    )


def _version(root: ReviewRoot, version: Any, *, secret: bool) -> shape.VersionShape:
    entry, content = version.entry, version.content if not secret else None
    path = show_path(root.outer(version.path))
    if entry is None:
        return shape.VersionShape(shape.SideShape(exists=False), path)
    side = shape.SideShape(
        exists=True,
        type=entry.kind,
        size=entry.size,
        mode=f"{entry.mode:04o}",
        target=show_path(entry.target) if entry.target else "",
        lines=content.count(b"\n") + (not content.endswith(b"\n")) if content else 0,
        image=picture_of(content[:IMAGE_HEAD], version.path) if content else "",
    )
    return shape.VersionShape(side, path, known=content is not None or entry.kind != "file")


def versions_of(current: ForkConflict) -> str:
    """Return a fingerprint for the sides, a dot, and one for the decision."""
    sides, decision = blake2b(digest_size=16), blake2b(current.decision, digest_size=8)
    for side in (current.base, current.ours, current.theirs):
        sides.update(repr((side.path, side.entry, side.content is None)).encode())
        sides.update(blake2b(side.content or b"").digest())
    return f"{sides.hexdigest()}.{decision.hexdigest() if current.decision else ''}"


def require_same_versions(current: ForkConflict, versions: str) -> None:
    now = versions_of(current)
    if versions == now:
        return
    if are_same_sides(versions, now):
        raise Refusal(409, "decided", f"somebody else has decided about {show_path(current.path)} meanwhile", _AGAIN)
    raise changed_refusal(current.path)


def are_same_sides(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


def changed_refusal(path: bytes) -> Refusal:
    return Refusal(409, "moved", f"{show_path(path)} has changed since it was reviewed; nothing was decided", _AGAIN)


class LinesQuery(Struct):
    file: str
    versions: str
    """The reviewed versions' fingerprint."""
    first: Annotated[int, Meta(ge=1, le=1 << 40)] = 1
    count: Annotated[int, Meta(ge=0, le=MOST)] = MOST


def lines(call: ApiCall) -> shape.TextShape:
    """Return folded lines. They are equal on all sides, so the project's are sent."""
    query: LinesQuery = call.query
    with call.server.session(call.path["project"]) as session:
        fork = require_at_rest(session, call.path["fork"])
        root, current = require_conflict(session, fork, path := path_of(query.file))
        if root.session.forks.secrets.hides_conflict(current) or not current.is_text:
            raise Refusal(400, "bad-request", f"{show_path(path)} has no lines that are shown")
        if not are_same_sides(versions_of(current), query.versions):
            raise changed_refusal(path)
        all_lines = split_lines(current.ours.content or b"")
        selected = all_lines[query.first - 1 : query.first - 1 + query.count]
        return shape.TextShape(query.first, len(all_lines), shown_lines(selected, query.first))


_FORK = "/projects/{project}/forks/{fork}"
ENDPOINTS = (
    Endpoint(
        "GET",
        _FORK + "/standing",
        "How a fork relates to the project as it is now",
        standing,
        shape.StandingShape,
        query=StandingQuery,
    ),
    Endpoint("GET", _FORK + "/conflicts", "The conflicts of a fork with the project", conflicts, shape.ConflictsShape),
    Endpoint(
        "GET",
        _FORK + "/conflict",
        "One conflict with all its sides",
        conflict,
        shape.ConflictShape,
        query=ConflictQuery,
    ),
    Endpoint(
        "GET",
        _FORK + "/conflict/lines",
        "Unchanged lines of a file in conflict",
        lines,
        shape.TextShape,
        query=LinesQuery,
    ),
)
