"""A project's history, and the changes that a rollback would drop, for graphical and terminal front ends."""

from __future__ import annotations

import time
from collections.abc import Callable

from mudroom.core.tree.change import Change, Changeset, counted_changes
from mudroom.errors import ForkChanged
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.forks.comparison import Comparison
from mudroom.vault.forks.review import fingerprint
from mudroom.vault.forks.stacking import find_checkpoint, timeline

if TYPE_CHECKING:
    from mudroom.core.journal.event import Event
    from mudroom.core.journal.event_filter import EventFilter
    from mudroom.core.tree.stack import Checkpoint
    from mudroom.session import Session

PATIENCE = 1.0
"""Seconds after which a journal search returns the events found so far."""


class DroppedChanges(NamedTuple):
    """Changes since a checkpoint, which a rollback drops."""

    fingerprint: str
    changes: tuple[Change, ...]
    rows: tuple[Change, ...]
    """Changes that are counted for the user."""


def preview(session: Session, fork: str, point: str) -> DroppedChanges:
    """Return the changes since a checkpoint. Raise UsageError if there is no such checkpoint."""
    find_checkpoint(session.vault.fork(fork), point)
    with session.forks.compare(f"{fork}@{point}", fork) as comparison:
        return _dropped(comparison.changeset)


def roll_back(session: Session, fork: str, point: str, seen: str) -> Checkpoint | None:
    """Roll back to a checkpoint and return the checkpoint that restores the dropped changes. Raise ForkChanged if the
    dropped changes are not those that the user saw (``seen``: their ``DroppedChanges.fingerprint``)."""

    def require() -> None:
        # The fork is at rest: its changes are recorded, and its lock is held; Forks.compare would wait for that lock.
        with Comparison(session.vault, f"{fork}@{point}", fork) as comparison:
            if _dropped(comparison.changeset).fingerprint != seen:
                raise ForkChanged(fork, "rolled back")

    return session.forks.rollback(fork, point, require=require)


def _dropped(changeset: Changeset) -> DroppedChanges:
    return DroppedChanges(fingerprint(changeset), changeset.changes, tuple(counted_changes(changeset.changes)))


def points(session: Session, fork: str) -> list[tuple[Checkpoint, bool]]:
    """Return a fork's checkpoints, oldest first, each with whether the fork is unchanged since."""
    return timeline(session.vault.fork(fork))


class Page(NamedTuple):
    events: tuple[Event, ...]
    """Newest first."""
    following: int | None
    """Older events have numbers below this; None: there are none. A page can have fewer events than requested."""


def search(
    session: Session, where: EventFilter, before: int, count: int, clock: Callable[[], float] = time.monotonic
) -> Page:
    """Return the newest ``count`` matching events before that number, or fewer after ``PATIENCE``."""
    events: list[Event] = []
    until = clock() + PATIENCE
    for chunk in session.vault.journal.search(where, before):
        events += chunk.events
        if len(events) >= count:
            return Page(tuple(events[:count]), events[count - 1].number)
        if clock() > until:
            return Page(tuple(events), chunk.down_to)
    return Page(tuple(events), None)
