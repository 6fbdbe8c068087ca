"""Measuring contestants in turn, and what came of it.

Contestants run A B C A B C …, never A A A B B B: a machine that slows down meanwhile slows all of them alike.
"""

from __future__ import annotations

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


class Series(NamedTuple):
    values: tuple[float, ...]
    unit: str = "s"

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Budget(NamedTuple):
    text: str
    holds: Callable[[float, float], bool]
    """Given the medians of ours and of what it is compared with."""


class Against(NamedTuple):
    """What ours is compared with."""

    name: str
    series: Series
    budget: Budget | None = None


class Finding(NamedTuple):
    """One thing measured, what it may cost, and the alternatives measured with it."""

    bench: str
    what: str
    ours: Series
    budget: Budget | None = None
    others: tuple[Against, ...] = ()

    def met(self) -> bool | None:
        return None if self.budget is None else self.budget.holds(self.ours.median, 0.0)

    def met_against(self, other: Against) -> bool | None:
        return None if other.budget is None else other.budget.holds(self.ours.median, other.series.median)

    def ratio(self, other: Against) -> float:
        return self.ours.median / other.series.median


def at_most(limit: float, text: str) -> Budget:
    return Budget("≤ " + text, lambda ours, _other: ours <= limit)


def at_most_times(limit: float) -> Budget:
    return Budget(f"≤ {limit:g}x", lambda ours, other: ours <= limit * other)


def at_most_over(limit: float, text: str) -> Budget:
    return Budget(f"≤ {text} over it", lambda ours, other: ours - other <= limit)


def interleave(contestants: Sequence[Contestant], rounds: int, warm_up: int = 1) -> dict[str, Series]:
    """Let all contestants run in turn, ``rounds`` times; the first ``warm_up`` rounds do not count."""
    found: dict[str, list[float]] = {}
    for number in range(warm_up + rounds):
        for contestant in contestants:
            for name, seconds in contestant():
                if number >= warm_up:
                    found.setdefault(name, []).append(seconds)
    return {name: Series(tuple(values)) for name, values in found.items()}


def against(
    found: Mapping[str, Series], names: Iterable[str], budgets: Mapping[str, Budget] | None = None
) -> tuple[Against, ...]:
    """The alternatives of these names, as far as they were there to be measured."""
    return tuple(Against(name, found[name], (budgets or {}).get(name)) for name in names if name in found)


def clocked(action: Callable[[], _Made]) -> tuple[float, _Made]:
    """The seconds that ``action`` took, and what it gave."""
    started = time.perf_counter()
    made = action()
    return time.perf_counter() - started, made


def seconds_of(action: Callable[[], object]) -> float:
    return clocked(action)[0]


def command(argv: Sequence[str | bytes], cwd: bytes | None = None, env: Mapping[bytes, bytes] | None = None) -> None:
    """Run a command, its output dropped. Raises CalledProcessError if it fails."""
    nothing = subprocess.DEVNULL
    subprocess.run(argv, cwd=cwd, env=env, check=True, stdin=nothing, stdout=nothing, stderr=nothing)


def timed(
    name: str, argv: Sequence[str | bytes], cwd: bytes | None = None, env: Mapping[bytes, bytes] | None = None
) -> Contestant:
    """A contestant that is one command."""
    return lambda: [(name, seconds_of(lambda: command(argv, cwd, env)))]
