"""Retention: which data in a vault is expired or unreferenced, and why. Pure; ``vault/retention/prune.py`` deletes.

Four rules have priority over all limits:
1. Unfinished work is never deleted.
2. The newest apply is never deleted, whatever its age and size, so that the last operation can always be undone.
3. Data is deleted only if it is certainly unreferenced: if a single fork's state cannot be read, no layer is deleted.
4. Data is older than an age only if that much time has passed by the vault's own clock (``core/clock.py``). Every
   ``before`` below is a time from ``horizon``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mudroom.core.clock import SECOND, VaultClock, horizon, lowest_since
from mudroom.core.settings import Settings
from mudroom.core.tree.stack import LIVE, ForkState
from mudroom.typing import Literal, NamedTuple

DAY = 86400 * SECOND
_FOREVER = 100 * 366 * 86400.0
"""Seconds. An infinite age cannot be converted to nanoseconds."""
YOUNG = 600 * SECOND
"""Nanoseconds. A layer is created before the state that references it is written, so a younger layer may still be
waiting for its state."""

Reason = Literal["age", "count", "bytes"]


class RetentionLimits(NamedTuple):
    """Limits on applies, automatic checkpoints and the journal."""

    age: int
    """Nanoseconds."""
    number: int
    """Number of applies, and of automatic checkpoints in each fork."""
    size: int
    """Bytes on disk used by all applies together."""
    journal: int = Settings().keep_journal
    """Bytes in the journal's database; beyond that, older events move to an archive."""
    journal_age: float = Settings().keep_journal_age
    """Seconds; older events in the database move to an archive."""


class ApplyFact(NamedTuple):
    name: str
    time: int
    """When the apply or undo happened, in nanoseconds since 1970."""
    size: int
    """Bytes on disk."""
    finished: bool = True


class Expired(NamedTuple):
    name: str
    reason: Reason
    size: int


def retention_limits(settings: Settings) -> RetentionLimits:
    age = int(min(settings.keep_age, _FOREVER) * SECOND)
    return RetentionLimits(
        age, settings.keep_applies, settings.keep_bytes, settings.keep_journal, settings.keep_journal_age
    )


def expired_applies(applies: Sequence[ApplyFact], kept: RetentionLimits, before: int) -> list[Expired]:
    """Return the expired applies. ``applies`` are sorted oldest first. The last and unfinished ones never expire.
    ``before``: the horizon for ``kept.age``."""
    expired: list[Expired] = []
    remaining, total = len(applies), sum(apply.size for apply in applies)
    for apply in applies[:-1]:
        if not apply.finished:
            continue
        reason: Reason
        if apply.time < before:
            reason = "age"
        elif remaining > kept.number:
            reason = "count"
        elif total > kept.size:
            reason = "bytes"
        else:
            continue
        expired.append(Expired(apply.name, reason, apply.size))
        remaining, total = remaining - 1, total - apply.size
    return expired


def expired_checkpoints(state: ForkState, kept: RetentionLimits, before: int) -> tuple[str, ...]:
    """Return the names of automatic checkpoints that are too old or too many. Named checkpoints are kept. ``before``:
    the horizon for ``kept.age``."""
    many = surplus_checkpoints(state, kept.number)
    own = (point for point in state.checkpoints if point.automatic)
    return tuple(point.name for point in own if point.name in many or point.time < before)


ALIKE = 4
"""Factor: if many checkpoints have equal layers, at most this many times the limit are kept."""


def surplus_checkpoints(state: ForkState, number: int) -> tuple[str, ...]:
    """Return the names of automatic checkpoints beyond the latest ``number``. Checkpoints with equal layers count as
    one, up to ``ALIKE * number`` in all: commands without changes must not displace the checkpoints of commands with
    changes."""
    own = [point for point in state.checkpoints if point.automatic]
    seen: set[tuple[str, ...]] = set()
    for kept, point in enumerate(reversed(own)):
        seen.add(point.layers)
        if len(seen) > number or kept >= ALIKE * number:
            return tuple(surplus.name for surplus in own[: len(own) - kept])
    return ()


def deletion_horizon(clock: VaultClock, held: Iterable[int]) -> int:
    """Return a time in nanoseconds. Unreferenced data older than this was not created by a running process.

    ``held``: when the held locks were taken. A lock holder's data has a stamp that the clock showed since its lock was
    taken. The margin of a day allows for a clock that was set back before this was noted.
    """
    return min([horizon(clock, YOUNG), *(min(taken - DAY, lowest_since(clock, taken)) for taken in held)])


def unreferenced(
    layers: Mapping[str, int], bases: Mapping[str, int], states: Sequence[ForkState], before: int
) -> tuple[list[str], list[str]]:
    """Return the layers and snapshots that no fork or checkpoint references and that were last modified before
    ``before``. ``layers`` and ``bases`` map names to modification times. List them before reading the states: in the
    other order, a layer that a new state references would look unreferenced."""
    needed = {layer for state in states for layer in state.references}
    used_bases = {state.base for state in states} - {LIVE}
    return (
        sorted(name for name, time in layers.items() if name not in needed and time < before),
        sorted(name for name, time in bases.items() if name not in used_bases and time < before),
    )
