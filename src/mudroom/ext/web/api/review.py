"""A fork's changes as rows. ``file.py`` sends a row's content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from zlib import crc32

from msgspec import Meta, Struct, convert, msgpack, structs

from mudroom.cli.change.agent_settings import changed_settings
from mudroom.core.network.push import PushRow, push_to_json
from mudroom.core.tree import dependent_rows
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.landing_form import OWNER
from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError
from mudroom.ext.order.core.risk import FileRisk, rate_by_name
from mudroom.ext.order.reader import risks_of
from mudroom.ext.review.roots import drift_of, roots_of
from mudroom.ext.review.rows import ReviewedFork, TaggedRows, can_conflict, has_hunks, review_fork, tags_of
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, id_of
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import require_fork

if TYPE_CHECKING:
    from mudroom.core.tree.entry import Entry
    from mudroom.session import Session

FEW = 2_000
"""Up to this number of changes, the answer includes conflicts. Also the default number of rows: a page shows these
while it loads the others."""
MOST = 20_000
DRIFTED = 100
_BATCH = 1_000
"""Rows made at once."""
Index = Annotated[int, Meta(ge=0, le=1 << 40)]
AGAIN = "look at it again"


class ChangesQuery(Struct):
    first: Index = 0
    count: Annotated[int, Meta(ge=0, le=MOST)] = FEW
    reviewed: str = ""
    """The previous page's fingerprint: if the fork has changed since, the next page is refused."""


def changes(call: ApiCall) -> shape.ChangesShape:
    query: ChangesQuery = call.query
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        reviewed = review_fork(session, name)
        if query.reviewed and query.reviewed != reviewed.fingerprint:
            raise Refusal(409, "moved", "the fork has changed since the page before this one", AGAIN)
        # If there are many changes, the list is sent first; ``standing`` answers how they relate to the project.
        drift = drift_of(session, name) if len(reviewed.changes) <= FEW else None
        conflicts = _conflicts(session, reviewed, drift) if drift is not None else None
        page = reviewed.rows[query.first : query.first + query.count]
        rows = zip(page, reviewed.tagged.once(_Rows).range_of(query.first, len(page)), strict=True)
        risks = risks_of(session, name) if len(reviewed.changes) <= FEW else {}
        return shape.ChangesShape(
            name,
            reviewed.fingerprint,
            shape.SummaryShape(*reviewed.summary),
            len(reviewed.rows),
            query.first,
            [_rated(row, risks.get(change.path), change.path in (conflicts or ())) for change, row in rows],
            [_remark(remark) for remark in reviewed.remarks],
            len(conflicts) if conflicts is not None else None,
            [_remark(remark) for remark in (drift or [])[:DRIFTED]],
            len(drift) if drift is not None else None,
            list(session.vault.fork(name).credentials),
            reviewed.running,
            session.vault.fork(name).created // 1_000_000,
            [line.strip() for line in changed_settings(session, name)],
            reviewed.in_use,
            [_push(row) for row in session.held_effects(name)],
            [shape.RootShape(show_path(path), label) for path, label in reviewed.labels.items()],
        )


def _conflicts(session: Session, reviewed: ReviewedFork, drift: list[Remark]) -> set[bytes] | None:
    """Return the paths of undecided conflicts; None if finding them takes too long."""
    if not can_conflict(reviewed.changes, drift):
        return set()
    if not session.forks.is_at_rest(reviewed.fork):
        return None
    try:
        return undecided_paths(session, reviewed.fork)
    except (MudroomError, OSError):
        return None  # the fork is mounted or busy after all; or an interrupted apply has taken files out of it


def undecided_paths(session: Session, fork: str) -> set[bytes]:
    return {
        root.outer(path)
        for root in roots_of(session, fork)
        for path, decided in root.session.changes.conflict_paths(root.fork).items()
        if not decided
    }


class _Rows:
    """Rows for sending, made when first requested. Answers share them: do not modify them."""

    def __init__(self, tagged: TaggedRows) -> None:
        self._tagged = tagged
        self._batches: dict[int, list[shape.RowShape]] = {}
        self._needs: dependent_rows.Needs = {}
        if any(map(dependent_rows.has_turned, tagged.rows)):
            self._needs = dependent_rows.needs(map(dependent_rows.row_of, tagged.rows))

    def range_of(self, first: int, count: int) -> list[shape.RowShape]:
        """Return rows; the range must exist."""
        begin = first - first % _BATCH
        rows = [row for at in range(begin, first + count, _BATCH) for row in self._batch(at)]
        return rows[first - begin : first - begin + count]

    def _batch(self, at: int) -> list[shape.RowShape]:
        rows_ = self._batches.get(at)
        if rows_ is None:
            rows, tags = self._tagged.rows[at : at + _BATCH], self._tagged.tags
            rows_ = self._batches[at] = [self._row(change, tags[change.path]) for change in rows]
        return rows_

    def _row(self, change: Change, tags: tuple[str, ...]) -> shape.RowShape:
        row = _rated(row_of(change, tags), rate_by_name(change, tags), is_conflict=False)
        row.needs = [id_of(path) for path in sorted(self._needs.get(change.path, ()))]
        return row


def _rated(row: shape.RowShape, risk: FileRisk | None, is_conflict: bool) -> shape.RowShape:
    """Return a row with its risk, if it is known, and whether it is in conflict."""
    flags = [*row.flags, "conflict"] if is_conflict else row.flags
    if risk is None:
        return structs.replace(row, flags=flags) if is_conflict else row
    return structs.replace(row, flags=flags, risk=risk.risk, weight=risk.weight, reasons=list(risk.reasons))


def row_of(change: Change, tags: tuple[str, ...] | None = None) -> shape.RowShape:
    """Return a change as a row. ``tags``: if already known."""
    staged = change.staged
    return shape.RowShape(
        id_of(change.path),
        show_path(change.path),
        change.verb,
        change.entry.kind,
        change.lines_added,
        change.lines_removed,
        change.staged.size if change.staged is not None else 0,
        list(tags_of(change) if tags is None else tags),
        show_path(change.source) if change.source else "",
        _modes(change),
        change.original_known,
        has_hunks(change),
        row_stamp(change),
        runs=change.runs,
        new_mode=mode_of(staged) if staged is not None else "",
        target=show_path(staged.target) if staged is not None and staged.target else "",
        owner=f"{staged.uid}:{staged.gid}" if staged is not None and OWNER in change.flags else "",
    )


def row_stamp(change: Change) -> str:
    """Return a change's identity, for lists and for requesting its difference."""
    return f"{crc32(msgpack.encode((change.verb, change.base, change.staged))):08x}"


def _modes(change: Change) -> tuple[str, str] | None:
    """Return both modes if they differ."""
    modes = change.modes
    return (f"{modes[0]:04o}", f"{modes[1]:04o}") if modes and change.entry.kind != "symlink" else None


def mode_of(entry: Entry) -> str:
    return "" if entry.kind == "symlink" else f"{entry.mode:04o}"


def _push(row: PushRow) -> shape.PushShape:
    details = [f"{sign} {line}".strip() for sign, line in row.files]
    fields = push_to_json(row) | {"name": row.bound, "label": row.name, "details": details}
    return convert(fields, shape.PushShape)


def _remark(remark: Remark) -> shape.RemarkShape:
    return shape.RemarkShape(id_of(remark.path), show_path(remark.path), remark.text)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/projects/{project}/forks/{fork}/changes",
        "The changes of a fork",
        changes,
        shape.ChangesShape,
        query=ChangesQuery,
    ),
)
