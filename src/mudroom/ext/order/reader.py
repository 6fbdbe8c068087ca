"""The order of a fork's review: its rows rated by their contents, within a budget.

Rows are read in the order in which their names rate them, so that the budget goes to the costliest. A row that is not
read keeps the risk of its name and flags, and ``unread`` counts it.
"""

from __future__ import annotations

import threading
import weakref

from mudroom.core.text.linediff import is_binary
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import show_path
from mudroom.core.tree.review_tags import has_hunks
from mudroom.errors import ForkMoved
from mudroom.ext.order.core.risk import FileRisk, rate, rate_by_name
from mudroom.ext.review.roots import roots_of
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.forks.both_sides import SidePair, SideReader
from mudroom.vault.forks.record_view import RecordView, TaggedRows, view_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mudroom.session import Session

BUDGET = 4 << 20
"""Bytes of a fork, both sides, that are examined for its order."""
LARGEST = 1 << 19
"""Bytes of a file that is examined."""


class RatedChange(NamedTuple):
    change: Change
    risk: FileRisk


class ReviewOrder(NamedTuple):
    rows: tuple[RatedChange, ...]
    """The costliest first; those of one risk by weight, then by path."""
    unread: int
    """Changed texts that were rated by name alone: too large, or beyond the budget."""

    @property
    def by_path(self) -> Mapping[bytes, FileRisk]:
        return {row.change.path: row.risk for row in self.rows}


_known: weakref.WeakKeyDictionary[TaggedRows, ReviewOrder] = weakref.WeakKeyDictionary()
_guards_known = threading.Lock()


def order_of(session: Session, fork: str) -> ReviewOrder:
    """Return the order of a fork's changes as last collected. Raise UsageError if the fork does not exist."""
    view = view_record(session.vault.reading, session.forks.record(fork))
    tagged = view.tagged(session.vault)
    with _guards_known:
        known = _known.get(tagged)
    if known is None:
        known = _read(session, fork, view, tagged)
        with _guards_known:
            _known[tagged] = known
    return known


def risks_of(session: Session, fork: str) -> dict[bytes, FileRisk]:
    """Return the risks of a fork's changes, in all its projects, by the paths of its review."""
    return {
        root.outer(path): risk
        for root in roots_of(session, fork)
        for path, risk in order_of(root.session, root.fork).by_path.items()
    }


def sides_of(session: Session, fork: str) -> SideReader:
    """Return a reader of both sides of a fork's changes, as last collected."""
    return SideReader(session.vault, fork, view_record(session.vault.reading, session.forks.record(fork)))


def _read(session: Session, fork: str, view: RecordView, tagged: TaggedRows) -> ReviewOrder:
    rated = [RatedChange(change, rate_by_name(change, tagged.tags[change.path])) for change in tagged.rows]
    rated.sort(key=_key)
    left, unread = BUDGET, 0
    with SideReader(session.vault, fork, view) as sides:
        moves = {move.new: move.old for move in sides.moves(session.forks.secrets.hides)} if _both_ways(rated) else {}
        moved = {old: new for new, old in moves.items()}
        for place, (change, _risk) in enumerate(rated):
            tags = tagged.tags[change.path]
            if change.path in moved:
                rated[place] = RatedChange(change, _moved(change, moved[change.path]))
            elif has_hunks(change) and "secret" not in tags and "ignored" not in tags:
                pair = sides.find(moves.get(change.path, change.path))
                size = sum(
                    entry.size for entry in (pair.old if pair is not None else None, change.staged) if entry is not None
                )
                texts = _texts(sides, change, pair) if size <= left and size <= 2 * LARGEST else None
                if texts is None:
                    unread += 1
                    continue
                left -= size
                rated[place] = RatedChange(change, rate(change, tags, *texts))
    return ReviewOrder(tuple(sorted(rated, key=_key)), unread)


def _key(row: RatedChange) -> tuple[tuple[int, int], bytes]:
    return row.risk.key, row.change.path


def _both_ways(rated: list[RatedChange]) -> bool:
    return {"added", "deleted"} <= {row.change.verb for row in rated}


def _moved(change: Change, to: bytes) -> FileRisk:
    """Return the risk of a file that was moved and changed: what it lost is rated where it is now."""
    risk = rate_by_name(change, ())
    return risk._replace(risk="tests" if risk.risk == "weakened" else risk.risk, reasons=(f"moved to {show_path(to)}",))


def _texts(sides: SideReader, change: Change, before: SidePair | None) -> tuple[bytes, bytes] | None:
    """Return both texts, or None if they are none, or not those that were collected."""
    after = sides.find(change.path)
    if before is None or after is None:
        return None
    try:
        old = sides.read(before, "old", LARGEST + 1) if before.old is not None else b""
        new = sides.read(after, "new", LARGEST + 1)
    except (ForkMoved, OSError):
        return None  # the fork is in use: the row is counted as unread
    if old is None or new is None or max(len(old), len(new)) > LARGEST or is_binary(old) or is_binary(new):
        return None
    return old, new
