"""What has happened in a project, and what a rollback would drop: for front doors that draw."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.tree.change import Changeset, listed
from mudroom.errors import ForkMoved
from mudroom.vault.forks.review import fingerprint
from mudroom.vault.forks.stacking import find_checkpoint, timeline

if TYPE_CHECKING:
    from mudroom.core.journal.event import Event
    from mudroom.core.journal.event_filter import EventFilter
    from mudroom.core.tree.change import Change
    from mudroom.core.tree.stack import Checkpoint
    from mudroom.session import Session

PATIENCE = 1.0
"""Seconds for which a journal is searched before what was found until then is given."""


class DroppedChanges(NamedTuple):
    """What a fork has changed since a checkpoint: a rollback drops it."""

    fingerprint: str
    changes: tuple[Change, ...]
    rows: tuple[Change, ...]
    """Those that a person counts."""


def preview(session: Session, fork: str, point: str) -> DroppedChanges:
    """Raises UsageError if there is no such checkpoint."""
    find_checkpoint(session.vault.fork(fork), point)
    return _dropped(_since(session, fork, point))


def roll_back(session: Session, fork: str, point: str, seen: str) -> Checkpoint | None:
    """Drop that, if it is what somebody has seen (``DroppedChanges.fingerprint``): raises ForkMoved otherwise. Returns
    the
    checkpoint by which it can be had back."""

    def require() -> None:
        if _dropped(_since(session, fork, point)).fingerprint != seen:
            raise ForkMoved(b"", f"what {fork} holds now", "rolled back")

    return session.forks.rollback(fork, point, require=require)


def _since(session: Session, fork: str, point: str) -> Changeset:
    with session.forks.compare(f"{fork}@{point}", fork) as found:
        return found.changeset


def _dropped(changeset: Changeset) -> DroppedChanges:
    return DroppedChanges(fingerprint(changeset), changeset.changes, tuple(listed(changeset.changes)))


def points(session: Session, fork: str) -> list[tuple[Checkpoint, bool]]:
    """The checkpoints of a fork, oldest first, and whether nothing has changed since."""
    return timeline(session.vault.fork(fork))


class Page(NamedTuple):
    events: tuple[Event, ...]
    """Newest first."""
    following: int | None
    """What comes after them is before this number; None: nothing does. There may be fewer than were asked for."""


def search(
    session: Session, where: EventFilter, before: int, count: int, clock: Callable[[], float] = time.monotonic
) -> Page:
    """The newest ``count`` events before that number that are wanted: those that are found in a second."""
    found: list[Event] = []
    until = clock() + PATIENCE
    for looked in session.vault.journal.search(where, before):
        found += looked.events
        if len(found) >= count:
            return Page(tuple(found[:count]), found[count - 1].number)
        if clock() > until:
            return Page(tuple(found), looked.down_to)
    return Page(tuple(found), None)
