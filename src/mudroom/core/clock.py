"""Beliefs about time. The wall clock can be set, forwards and back, at any moment; the clock that counts from the boot
cannot. Pure.

Rules of this file:
1. How much time passes in a vault is counted by its own clock (``VaultClock``): within one boot by the clock that
   counts from the boot, from one boot to the next by the wall clock, but never less than nothing and never more than
   ``LONGEST``.
2. A file is older than an age only if its stamp is before every time that the wall clock showed during that age of the
   vault (``horizon``). So a clock that was set makes data stay longer, never shorter.
3. An edit during a command has a ctime of that command's time (``EditWindow``), also if the clock is set back
   meanwhile. A ctime that the clock has not reached yet is of a time before the clock was set back.
"""

from __future__ import annotations

from mudroom.typing import NamedTuple

SECOND = 10**9
STEADY = 60 * SECOND
"""Nanoseconds. A smaller difference between the two clocks is an adjustment (ntpd, RTC), and does not matter for ages
of ten minutes and more."""
LONGEST = 7 * 86400 * SECOND
"""Nanoseconds that count for the time between two boots, whatever the wall clock says."""
SPANS = 64
"""Spans that are kept. Data of the time before them has no known age, and is not old."""
EXACT = 1_000_000
"""Nanoseconds: the precision of ``CommandStart.boot``."""
SKEW = 300 * SECOND
"""Nanoseconds by which the clock of a file server may be ahead of ours: the limit of Kerberos (RFC 4120, 1.6)."""
NEVER = -(1 << 62)
"""A time in nanoseconds before all others."""


class Moment(NamedTuple):
    time: int
    """Nanoseconds since 1970, by the wall clock, which can be set."""
    running: int
    """Nanoseconds since boot, including suspend, by a clock that users cannot set."""
    boot: str
    """Identifies the boot; empty if it is unknown."""


# --- the age of data in a vault ---


class Span(NamedTuple):
    """A part of a vault's life in which the wall clock was not set. All in nanoseconds."""

    age: int
    """Of the vault, at the beginning."""
    wall: int
    """Time of the wall clock at the beginning."""
    last_age: int
    last_wall: int


class VaultClock(NamedTuple):
    last: Moment
    """The last moment that was noted."""
    spans: tuple[Span, ...]
    """Oldest first, never empty."""
    swept: int = -1
    """Age of the vault at the last full run of retention; -1: there was none."""

    @property
    def age(self) -> int:
        return self.spans[-1].last_age


def noted(clock: VaultClock | None, now: Moment) -> VaultClock:
    """Return the vault's clock at this moment. ``clock``: as it was last noted; None for a new vault."""
    if clock is None:
        return VaultClock(now, (Span(0, now.time, 0, now.time),))
    passed, is_steady = _passed(clock.last, now)
    age, last = clock.age + passed, clock.spans[-1]
    if is_steady:
        spans = (*clock.spans[:-1], last._replace(last_age=age, last_wall=now.time))
    else:  # the clock was set at some moment in between, so both spans have all of that time
        before = last._replace(last_age=age, last_wall=last.last_wall + passed)
        spans = (*clock.spans[:-1], before, Span(clock.age, now.time - passed, age, now.time))
    return clock._replace(last=now, spans=spans[-SPANS:])


def is_running_on(clock: VaultClock, now: Moment) -> bool:
    """Whether the wall clock was not set since the last note, so that ``now`` need not be noted. ``now.boot`` is not
    needed: after a boot the two clocks differ by more."""
    passed = now.running - clock.last.running
    return passed >= 0 and abs(now.time - clock.last.time - passed) <= STEADY


def _passed(last: Moment, now: Moment) -> tuple[int, bool]:
    """Return the nanoseconds that passed between two moments, and whether the wall clock agrees."""
    wall = now.time - last.time
    if last.boot and last.boot == now.boot and now.running >= last.running:
        passed = now.running - last.running
        return passed, abs(wall - passed) <= STEADY
    return max(0, min(wall, LONGEST)), -STEADY <= wall <= LONGEST


def horizon(clock: VaultClock, age: int) -> int:
    """Return a time: data with an earlier stamp is older than ``age`` nanoseconds. ``NEVER`` if the vault itself is
    younger."""
    return _lowest(clock, clock.age - age)


def lowest_since(clock: VaultClock, stamp: int) -> int:
    """Return the lowest time that the wall clock showed since data with this stamp was written. ``NEVER`` if it did not
    show the stamp's time in the vault's life."""
    ages = [
        min(span.last_age, span.age + stamp - span.wall)  # a wall clock that is slewed runs ahead of the other
        for span in clock.spans
        if span.wall <= stamp <= span.last_wall
    ]
    return _lowest(clock, min(ages)) if ages else NEVER


def _lowest(clock: VaultClock, since: int) -> int:
    if since < clock.spans[0].age:
        return NEVER
    return min(
        span.last_wall - (span.last_age - max(since, span.age)) for span in clock.spans if span.last_age >= since
    )


# --- whether the user has edited a file while a command ran ---


class CommandStart(NamedTuple):
    time: int
    """Nanoseconds since 1970, by the coarse clock with which file systems stamp."""
    boot: int = 0
    """Time of the boot by the wall clock as it was set then, in nanoseconds since 1970; 0: unknown."""


class EditWindow(NamedTuple):
    """The times that an edit since the start of a command can have as its ctime."""

    first: int
    is_bounded: bool = False
    """Whether the clock was not set back since, so that no edit has a ctime that is still to come."""

    def is_ahead(self, ctime: int, now: int) -> bool:
        """Whether this ctime is still to come: it is from before the clock was set back, so from before the command.
        ``now``: read after the ctime."""
        return self.is_bounded and ctime > now + SKEW


def edit_window(start: CommandStart, now: CommandStart) -> EditWindow:
    """Return the window of a command that began at ``start``, perhaps within the same tick of the clock.

    If mudroom was killed, the machine may have been started again since. Not covered: a clock that was set back and
    forwards again while the command ran."""
    back = start.boot - now.boot
    if not start.boot:
        return EditWindow(start.time)
    if now.time - now.boot + EXACT < start.time - start.boot:
        return EditWindow(min(start.time, now.boot))
    if back <= EXACT:
        return EditWindow(start.time, is_bounded=True)
    return EditWindow(start.time - back)
