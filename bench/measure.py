"""Measuring contestants in turn, and what came of it.

Contestants run A B C A B C …, never A A A B B B: a machine that slows down meanwhile slows all of them alike.

A rival that is not installed, does not start or fails is left out from then on, and is a row that says why. What is
mudroom's own may not fail.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

_Made = TypeVar("_Made")

Lap = tuple[str, float]
"""What was measured, and its seconds."""

Contestant = Callable[[], Iterable[Lap]]
"""Prepares, measures one thing or several, clears up."""


RATES = ("MB/s",)
"""Units of which more is better."""


class Series(NamedTuple):
    values: tuple[float, ...]
    """Empty if it could not be measured."""
    unit: str = "s"

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def best(self) -> float:
        """The value that was disturbed least."""
        return max(self.values) if self.unit in RATES else min(self.values)


NONE = Series(())


class Budget(NamedTuple):
    text: str
    holds: Callable[[float, float], bool]
    """Given the medians of ours and of what it is compared with."""


class Against(NamedTuple):
    """What ours is compared with."""

    name: str
    series: Series
    budget: Budget | None = None
    why: str = ""
    """Why it was not measured."""


class Finding(NamedTuple):
    """One thing measured, what it may cost, and the alternatives measured with it."""

    bench: str
    what: str
    ours: Series
    budget: Budget | None = None
    others: tuple[Against, ...] = ()
    why: str = ""
    """Why it was not measured."""

    def met(self) -> bool | None:
        if self.budget is None or not self.ours.values:
            return None
        return self.budget.holds(self.ours.median, 0.0)

    def met_against(self, other: Against) -> bool | None:
        if other.budget is None or not self.compares(other):
            return None
        return other.budget.holds(self.ours.median, other.series.median)

    def compares(self, other: Against) -> bool:
        return bool(self.ours.values and other.series.values)

    def ratio(self, other: Against) -> float:
        return self.ours.median / other.series.median

    def best_ratio(self, other: Against) -> float:
        return self.ours.best / other.series.best


def unmeasured(bench: str, what: str, why: str) -> Finding:
    return Finding(bench, what, NONE, why=why)


def at_most(limit: float, text: str) -> Budget:
    return Budget("≤ " + text, lambda ours, _other: ours <= limit)


def at_most_times(limit: float) -> Budget:
    return Budget(f"≤ {limit:g}x", lambda ours, other: ours <= limit * other)


def at_least_times(limit: float) -> Budget:
    """For rates."""
    return Budget(f"≥ {limit:g}x", lambda ours, other: ours >= limit * other)


def at_most_over(limit: float, text: str) -> Budget:
    return Budget(f"≤ {text} over it", lambda ours, other: ours - other <= limit)


class Rival:
    """A contestant that may be missing. ``names``: what it measures."""

    def __init__(self, contestant: Contestant, *names: str) -> None:
        self.names = names
        self._contestant = contestant

    def __call__(self) -> Iterable[Lap]:
        """Raise RivalMissing if it is not installed or fails."""
        try:
            return list(self._contestant())
        except FAILURES as error:
            raise RivalMissing(reason(error)) from error


class RivalMissing(Exception):
    """With the reason."""


FAILURES = (OSError, subprocess.SubprocessError, RuntimeError, AssertionError)
"""What it raises that a program is missing, does not start or does not do what it should."""


def reason(error: BaseException) -> str:
    """Return why something could not be measured, in one line."""
    if isinstance(error, (FileNotFoundError, PermissionError)) and error.filename is not None:
        name = os.fsdecode(error.filename)
        if shutil.which(name) is None:  # EACCES: a directory of PATH may not be entered, and no other has it
            return f"{os.path.basename(name)} is not installed"
    if isinstance(error, subprocess.CalledProcessError):
        words = error.cmd if isinstance(error.cmd, (list, tuple)) else [error.cmd]
        said = os.fsdecode(error.stderr or b"").split("\n")
        line = next((line for line in said if line and "WARNING" not in line), "")
        failed = f"{os.path.basename(os.fsdecode(words[0]))} failed with exit code {error.returncode}"
        return f"{failed}: {line}"[:200] if line else failed
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


class Found(dict[str, Series]):
    """What was measured, by name. ``missing``: why other names were not."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: dict[str, str] = {}


def interleave(contestants: Sequence[Contestant], rounds: int, warm_up: int = 1) -> Found:
    """Let all contestants run in turn, ``rounds`` times; the first ``warm_up`` rounds do not count. A ``Rival`` that
    fails once is left out."""
    found = Found()
    values: dict[str, list[float]] = {}
    left = list(contestants)
    for number in range(warm_up + rounds):
        for contestant in list(left):
            try:
                laps = list(contestant())
            except RivalMissing as error:
                names = contestant.names if isinstance(contestant, Rival) else ()
                found.missing |= dict.fromkeys(names, str(error))
                left.remove(contestant)
                continue
            for name, seconds in laps if number >= warm_up else ():
                values.setdefault(name, []).append(seconds)
    found.update((name, Series(tuple(some))) for name, some in values.items() if name not in found.missing)
    return found


def against(
    found: Mapping[str, Series], names: Iterable[str], budgets: Mapping[str, Budget] | None = None
) -> tuple[Against, ...]:
    """The alternatives of these names that took part, measured or not."""
    missing = found.missing if isinstance(found, Found) else {}
    return tuple(
        Against(name, found.get(name, NONE), (budgets or {}).get(name), missing.get(name, ""))
        for name in names
        if name in found or name in missing
    )


def clocked(action: Callable[[], _Made]) -> tuple[float, _Made]:
    """The seconds that ``action`` took, and what it gave."""
    started = time.perf_counter()
    made = action()
    return time.perf_counter() - started, made


def seconds_of(action: Callable[[], object]) -> float:
    return clocked(action)[0]


def command(argv: Sequence[str | bytes], cwd: bytes | None = None, env: Mapping[bytes, bytes] | None = None) -> None:
    """Run a command, its output dropped. Raises CalledProcessError, with what it has complained, if it fails."""
    nothing = subprocess.DEVNULL
    with os.fdopen(os.memfd_create("stderr"), "r+b") as stderr:
        try:
            subprocess.run(argv, cwd=cwd, env=env, check=True, stdin=nothing, stdout=nothing, stderr=stderr)
        except subprocess.CalledProcessError as error:
            stderr.seek(0)
            error.stderr = stderr.read(1 << 12)
            raise


def timed(
    name: str, argv: Sequence[str | bytes], cwd: bytes | None = None, env: Mapping[bytes, bytes] | None = None
) -> Contestant:
    """A contestant that is one command."""
    return lambda: [(name, seconds_of(lambda: command(argv, cwd, env)))]
