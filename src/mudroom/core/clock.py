"""A vault's time. The wall clock can be set at any moment, forwards or back; the clock that counts from boot cannot.
Pure.

Rules of this file:
1. A vault has its own clock (``VaultClock``). Within a boot it follows the clock that counts from boot. From one boot
   to the next it follows the wall clock, but never backwards and never more than ``LONGEST``.
2. A file is older than an age only if its stamp is before every time that the wall clock showed during that part of the
   vault's life (``horizon``). So setting the clock makes data stay longer, never shorter.
3. An edit during a command has a ctime within the command's time (``EditWindow``), even if the clock is set back
   meanwhile. A ctime that the clock has not reached yet dates from before the clock was set back.
"""

from __future__ import annotations

from mudroom.typing import NamedTuple

SECOND = 10**9
STEADY = 60 * SECOND
"""Nanoseconds. A smaller difference between the two clocks is an adjustment (ntpd, RTC), and does not matter for ages
above ten minutes."""
LONGEST = 7 * 86400 * SECOND
"""Nanoseconds: the most that counts between two boots, whatever the wall clock says."""
SPANS = 64
"""Spans that are kept. Data from before them has no known age, and is not old."""
EXACT = 1_000_000
"""Nanoseconds: the precision of ``CommandStart.boot``."""
SKEW = 300 * SECOND
"""Nanoseconds by which a file server's clock may be ahead of ours: Kerberos's limit (RFC 4120, 1.6)."""
NEVER = -(1 << 62)
"""A time before all others, in nanoseconds."""


class Moment(NamedTuple):
    time: int
    """Nanoseconds since 1970, by the wall clock, which can be set."""
    running: int
    """Nanoseconds since boot, including suspend, by a clock that users cannot set."""
    boot: str
    """Identifies the boot; empty if unknown."""


# --- how old data in a vault is ---


class Span(NamedTuple):
    """A part of a vault's life in which the wall clock was not set. All fields are nanoseconds."""

    age: int
    """The vault's age at the beginning."""
    wall: int
    """The wall clock's time at the beginning."""
    last_age: int
    last_wall: int


class VaultClock(NamedTuple):
    last: Moment
    """The last moment that was noted."""
    spans: tuple[Span, ...]
    """Oldest first, never empty."""
    swept: int = -1
    """The vault's age at the last full retention run; -1: there was none."""

    @property
    def age(self) -> int:
        return self.spans[-1].last_age


def noted(clock: VaultClock | None, now: Moment) -> VaultClock:
    """Return the vault's clock at this moment. ``clock``: as last noted; None for a new vault."""
    if clock is None:
        return VaultClock(now, (Span(0, now.time, 0, now.time),))
    passed, is_steady = _passed(clock.last, now)
    age, last = clock.age + passed, clock.spans[-1]
    if is_steady:
        spans = (*clock.spans[:-1], last._replace(last_age=age, last_wall=now.time))
    else:  # the clock was set at some moment in between, so both spans include all of that time
        before = last._replace(last_age=age, last_wall=last.last_wall + passed)
        spans = (*clock.spans[:-1], before, Span(clock.age, now.time - passed, age, now.time))
    return clock._replace(last=now, spans=spans[-SPANS:])


def is_running_on(clock: VaultClock, now: Moment) -> bool:
    """Return whether the wall clock was not set since the last note, so that ``now`` need not be noted. ``now.boot`` is
    not needed: after a boot the two clocks differ by more than ``STEADY``."""
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
    """Return a time such that data with an earlier stamp is older than ``age`` nanoseconds. Return ``NEVER`` if the
    vault itself is younger."""
    return _lowest(clock, clock.age - age)


def lowest_since(clock: VaultClock, stamp: int) -> int:
    """Return the lowest time that the wall clock showed since data with this stamp was written. Return ``NEVER`` if the
    clock did not show the stamp's time during the vault's life."""
    ages = [
        min(span.last_age, span.age + stamp - span.wall)  # a slewed wall clock runs ahead of the boot clock
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


# --- whether the user edited a file while a command ran ---


class CommandStart(NamedTuple):
    time: int
    """Nanoseconds since 1970, by the coarse clock that file systems use for stamps."""
    boot: int = 0
    """When the machine booted, by the wall clock as it was set then, in nanoseconds since 1970; 0: unknown."""


class EditWindow(NamedTuple):
    """The ctimes that an edit since a command's start can have."""

    first: int
    is_bounded: bool = False
    """True if the clock has not been set back since, so that no edit's ctime lies in the future."""

    def is_ahead(self, ctime: int, now: int) -> bool:
        """Return whether this ctime lies in the future: it dates from before the clock was set back, so from before the
        command. ``now``: read after the ctime."""
        return self.is_bounded and ctime > now + SKEW


def edit_window(start: CommandStart, now: CommandStart) -> EditWindow:
    """Return the edit window for a command that began at ``start``, perhaps within the same clock tick.

    If mudroom was killed, the machine may have been rebooted since. Not covered: a clock that was set back and then
    forwards again while the command ran.
    """
    back = start.boot - now.boot
    if not start.boot:
        return EditWindow(start.time)
    if now.time - now.boot + EXACT < start.time - start.boot:
        return EditWindow(min(start.time, now.boot))
    if back <= EXACT:
        return EditWindow(start.time, is_bounded=True)
    return EditWindow(start.time - back)
