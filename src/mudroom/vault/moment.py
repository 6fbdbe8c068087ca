"""This machine's clocks, as values of ``core/clock.py``, and a vault's clock, kept in its file ``clock``.

    TIME RUNNING BOOT SWEPT         the last noted moment; the vault's age at the last full run of retention
    AGE WALL LAST_AGE LAST_WALL     one line for each span, oldest first

All numbers are nanoseconds. The file is replaced by a rename. Two processes that write at the same time have read the
same clock, so either file is right. A damaged file is treated like a new vault's, in which no data is old.
"""

from __future__ import annotations

import os
import sys
import time

from mudroom.core.clock import NEVER, CommandStart, Moment, Span, VaultClock, is_running_on, lowest_since, noted
from mudroom.core.system.closing import Descriptor
from mudroom.stage import disk, safe_open
from mudroom.stage.stamp import file_clock
from mudroom.typing import NamedTuple

NAME = b"/clock"
PATIENCE = 20_000_000
"""Nanoseconds to wait for the next tick of the file systems' clock: two ticks of the slowest kernel (CONFIG_HZ)."""
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))
"""Advances while the machine sleeps. So does CLOCK_MONOTONIC on macOS (clock_gettime(3)), but not on Linux."""
_CLOCK_MONOTONIC_COARSE = 6
"""linux/time.h; Python has no name for it."""
_READINGS = 3
_LOOK = 0.0002
"""Seconds between looks at the clock."""
_LIMIT = 1 << 16


if sys.platform == "win32":
    from mudroom.core.registry import twin

    running = twin("process").running
else:

    def running() -> int:
        """Return nanoseconds since boot, sleep included."""
        return time.clock_gettime_ns(_BOOTTIME)


def now(wall: int | None = None) -> Moment:
    """Return the present moment. ``wall``: another wall clock time to use instead."""
    from mudroom.core.system.process import boot  # seldom needed: once after each boot

    return Moment(time.time_ns() if wall is None else wall, running(), boot())


# --- the vault's clock ---


def clock_of(vault: bytes, wall: int | None = None) -> VaultClock:
    """Return the vault's clock now, without noting it. Costs one file read. ``wall``: as for ``now``."""
    return _advanced(_read(vault + NAME), wall)


def _advanced(kept: VaultClock | None, wall: int | None) -> VaultClock:
    wall = time.time_ns() if wall is None else wall
    if kept is not None:
        quick = Moment(wall, running(), kept.last.boot)
        if kept.last.boot and is_running_on(kept, quick):
            return noted(kept, quick)
    return noted(kept, now(wall))


def clock_at(vault: bytes, at: Moment) -> VaultClock:
    """Return the vault's clock at any moment, without noting it."""
    return noted(_read(vault + NAME), at)


def note(vault: bytes, wall: int | None = None) -> VaultClock:
    """Return the vault's clock. Note it if the machine was started or the wall clock was set since the last note.

    Every command that writes data whose age matters calls this. Raise OSError.
    """
    kept = _read(vault + NAME)
    clock = _advanced(kept, wall)
    if kept is None or kept.last.boot != clock.last.boot or kept.spans[-1][:2] != clock.spans[-1][:2]:
        save(vault, clock)
    return clock


def earliest_since(vault: bytes, stamp: int) -> int:
    """Return a lower bound for all stamps written after ``stamp``. It is ``stamp`` itself unless the clock was set back
    since."""
    lowest = lowest_since(clock_of(vault), stamp)
    return min(stamp, lowest) if lowest != NEVER else stamp


def save(vault: bytes, clock: VaultClock) -> None:
    head = f"{clock.last.time} {clock.last.running} {clock.last.boot or '-'} {clock.swept}\n"
    text = head + "".join(" ".join(map(str, span)) + "\n" for span in clock.spans)
    beside = vault + NAME + b"." + os.urandom(4).hex().encode()  # unique: other threads write their own
    safe_open.replace(vault + NAME, text.encode("ascii"), beside, durable=False)


def _read(path: bytes) -> VaultClock | None:
    try:
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_CLOEXEC | disk.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with Descriptor(descriptor):
        lines = os.read(descriptor, _LIMIT).decode("ascii", "replace").splitlines()
    try:
        wall, running, boot, swept = lines[0].split(" ")
        spans = tuple(Span(*map(int, line.split(" "))) for line in lines[1:])
        last = Moment(int(wall), int(running), boot if boot != "-" else "")
        return VaultClock(last, spans, int(swept)) if spans else None
    except (ValueError, TypeError, IndexError):
        return None


# --- commands ---


def command_start(vault: bytes, called: int) -> CommandStart:
    """Return the present time by the file systems' clock, later than ``called`` and than the last apply.

    ``called``: when the caller asked for the command (``time.time_ns``). Anything written earlier must not count as an
    edit during the command. Wait for that clock's next tick if necessary, at most ``PATIENCE``. If the clock was set
    back since, do not wait: see ``EditWindow``.

    A file's ctime may be later than the coarse clock when it is written: since Linux 6.13 a file that was examined is
    stamped with the fine clock (Documentation/filesystems/multigrain-ts.rst).
    """
    earlier = _earlier(vault, called)
    until = time.monotonic_ns() + PATIENCE
    while True:
        start = present()
        must_wait = any(start.time <= before <= start.time + PATIENCE for before in earlier)
        if not must_wait or time.monotonic_ns() >= until:
            return start
        time.sleep(_LOOK)


def _earlier(vault: bytes, called: int) -> tuple[int, int]:
    return called, os.stat(vault + b"/applies").st_mtime_ns


class StartBound(NamedTuple):
    """Earliest start for a command, for a launcher that waits itself. Nanoseconds by CLOCK_MONOTONIC_COARSE, which
    ticks together with the file systems' clock."""

    after: int
    after_apply: int
    """Bound for a command in a project that is known to be unchanged since an earlier command began: only files that an
    apply wrote can have the present stamp."""
    offset: int
    """Nanoseconds to add to that clock for the time by the file systems' clock."""
    now: CommandStart
    """The present time; the command starts later."""

    def start(self, running: int) -> CommandStart:
        """Return a command's start, from its time by CLOCK_MONOTONIC_COARSE."""
        return self.now._replace(time=running + self.offset)


def start_bound(vault: bytes, called: int) -> StartBound:
    """Return the bound that ``command_start`` waits for."""
    earlier, now = _earlier(vault, called), present()
    running = _ticks()
    for _reading in range(_READINGS):
        if (again := file_clock()) == now.time:
            break
        # A tick came between the two readings. On systems other than Linux the clock does not tick, and never reads the
        # same twice: the start is then too early by the time between two readings, which is the safe side.
        now, running = now._replace(time=again), _ticks()
    offset = now.time - running
    called_at, applied_at = (max(before - offset, 1) if before <= now.time + PATIENCE else 1 for before in earlier)
    return StartBound(max(called_at, applied_at), applied_at, offset, now)


def _ticks() -> int:
    return time.clock_gettime_ns(_CLOCK_MONOTONIC_COARSE)


def is_of_earlier_boot(path: bytes) -> bool | None:
    """Return whether a file was written before the machine was started, by the wall clock; None if there is none."""
    try:
        return os.stat(path).st_mtime_ns < time.time_ns() - running()
    except FileNotFoundError:
        return None


def present() -> CommandStart:
    """Return the time by the file systems' clock, with the boot time."""
    # The wall clock is read first, so that an interruption between the two readings makes the result lower.
    boot = max(time.time_ns() - running() for _reading in range(_READINGS))
    return CommandStart(file_clock(), boot)
