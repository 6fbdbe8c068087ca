"""Clocks of vaults whose time passes in a test, and a wall clock that can be set."""

from __future__ import annotations

import time
from time import sleep  # tests replace time.sleep

from mudroom.core.clock import SECOND, Moment, Span, VaultClock
from mudroom.core.retention import DAY
from mudroom.vault.moment import save
from mudroom.vault.store.store import Vault

HOUR = 3600 * SECOND
_WALL_CLOCKS = (0, 5)
"""CLOCK_REALTIME, CLOCK_REALTIME_COARSE: linux/time.h."""
_LONG = 20 * 366 * DAY


def steady(now: int, *, unswept: int = _LONG + 1) -> VaultClock:
    """The clock of a vault that is twenty years old at ``now``, and was never set. ``unswept``: the time
    since the last full run of retention."""
    return VaultClock(Moment(now, 0, ""), (Span(0, now - _LONG, _LONG, now),), _LONG - unswept)


def let_pass(vault: Vault, now: int) -> int:
    """Let time pass in a vault until ``now``, on another boot. Return it."""
    save(vault.path, steady(now))
    return now


def give_way() -> None:
    """Sleep for 2 ms between two looks at what a test waits for: a loop that only looks takes the processor from those
    that it waits for. A test must not depend on how long this takes."""
    sleep(0.002)


class WallClock:
    """The wall clock of this process, which can be set; ``release`` it. The kernel goes on to stamp files by its own
    clock, as if that had been set between them and what this process does next."""

    def __init__(self) -> None:
        self.ahead = 0
        self._nanoseconds, self._seconds, self._any = time.time_ns, time.time, time.clock_gettime_ns
        time.time_ns = lambda: self._nanoseconds() + self.ahead
        time.time = lambda: self._seconds() + self.ahead / SECOND
        time.clock_gettime_ns = lambda clock: self._any(clock) + (self.ahead if clock in _WALL_CLOCKS else 0)

    def release(self) -> None:
        time.time_ns, time.time, time.clock_gettime_ns = self._nanoseconds, self._seconds, self._any
