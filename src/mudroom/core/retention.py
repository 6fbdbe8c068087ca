"""What of a vault has had its time. Pure: facts in, what goes and why out; ``vault/retention/prune.py`` does it.

Three rules stand above all limits. What is not finished never goes. The newest apply never goes: whatever its age and
size, the last thing that was done can be taken back. And nothing that only *may* be unneeded goes: if one fork's needs
cannot be read, no layer is unneeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from mudroom.core.settings import Settings
from mudroom.core.tree.stack import LIVE, ForkState

SECOND = 10**9
DAY = 86400 * SECOND
_FOREVER = 100 * 366 * 86400.0
"""Seconds. Infinity is no number of nanoseconds."""
YOUNG = 600 * SECOND
"""A layer is made a moment before the state that names it is written. One younger than this may be just there."""

Reason = Literal["age", "count", "bytes"]


class RetentionLimits(NamedTuple):
    """The limits."""

    age: int
    """Nanoseconds."""
    number: int
    """Applies; automatic checkpoints of one fork."""
    size: int
    """Bytes on disk of all applies together."""
    journal: int = Settings().keep_journal
    """Bytes of the journal's database; what is beyond moves to an archive."""
    journal_age: float = Settings().keep_journal_age
    """Seconds, of events in the database."""


class ApplyFact(NamedTuple):
    name: str
    time: int
    """When it was done or undone, in nanoseconds since 1970."""
    size: int
    """Bytes on disk."""
    finished: bool = True


class Expired(NamedTuple):
    name: str
    reason: Reason
    size: int


def kept_by(settings: Settings) -> RetentionLimits:
    age = int(min(settings.keep_age, _FOREVER) * SECOND)
    return RetentionLimits(
        age, settings.keep_applies, settings.keep_bytes, settings.keep_journal, settings.keep_journal_age
    )


def expired_applies(applies: Sequence[ApplyFact], kept: RetentionLimits, now: int) -> list[Expired]:
    """``applies``: oldest first. The last of them stays in any case, and so does an unfinished one."""
    found: list[Expired] = []
    left, total = len(applies), sum(apply.size for apply in applies)
    for apply in applies[:-1]:
        if not apply.finished:
            continue
        reason: Reason
        if now - apply.time > kept.age:
            reason = "age"
        elif left > kept.number:
            reason = "count"
        elif total > kept.size:
            reason = "bytes"
        else:
            continue
        found.append(Expired(apply.name, reason, apply.size))
        left, total = left - 1, total - apply.size
    return found


def expired_checkpoints(state: ForkState, kept: RetentionLimits, now: int) -> tuple[str, ...]:
    """Names of the checkpoints that mudroom made by itself and that are too old, or too many. Named ones stay."""
    many = surplus_checkpoints(state, kept.number)
    own = (point for point in state.checkpoints if point.automatic)
    return tuple(point.name for point in own if point.name in many or now - point.time > kept.age)


ALIKE = 4
"""So many names for each state that is kept."""


def surplus_checkpoints(state: ForkState, number: int) -> tuple[str, ...]:
    """Names of those that mudroom made by itself beyond the latest so many. Several of the very same count as one, as
    far as they are not too many: commands that change nothing must not push out what others have changed."""
    own = [point for point in state.checkpoints if point.automatic]
    seen: set[tuple[str, ...]] = set()
    for kept, point in enumerate(reversed(own)):
        seen.add(point.layers)
        if len(seen) > number or kept >= ALIKE * number:
            return tuple(one.name for one in own[: len(own) - kept])
    return ()


def horizon(now: int, held: Iterable[int]) -> int:
    """What nobody needs and is older than this was not made by anybody who is at work now.

    ``held``: when each lock that somebody holds was taken. What its holder makes is younger than that by the same
    clock; the day is for clocks that are set back.
    """
    return min([now - YOUNG, *(taken - DAY for taken in held)])


def unneeded(
    layers: Mapping[str, int], bases: Mapping[str, int], states: Sequence[ForkState], before: int
) -> tuple[list[str], list[str]]:
    """Layers and snapshots that no fork and no checkpoint needs, of those last touched ``before``. Both are given
    with the time at which they were last touched. List them first and read the states afterwards, never the other
    way round."""
    needed = {layer for state in states for layer in state.references}
    stood_on = {state.base for state in states} - {LIVE}
    return (
        sorted(name for name, time in layers.items() if name not in needed and time < before),
        sorted(name for name, time in bases.items() if name not in stood_on and time < before),
    )
