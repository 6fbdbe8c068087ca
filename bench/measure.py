"""Measuring contestants in turn, and what came of it as rows of one table.

Contestants run A B C A B C …, never A A A B B B: a machine that slows down meanwhile slows all of them alike.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Contestant = Callable[[], Sequence[float]]
"""Prepares, measures, clears up; returns the seconds measured, one or several."""


class Series(NamedTuple):
    values: tuple[float, ...]
    unit: str = "s"

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def scaled(self, unit: str, factor: float) -> Series:
        return Series(tuple(value * factor for value in self.values), unit)

    def __str__(self) -> str:
        factor, unit = _scale(self.median, self.unit)
        low, high = (_number(edge(self.values) * factor) for edge in (min, max))
        return f"{_number(self.median * factor)} {unit} ({low}–{high})"


class Budget(NamedTuple):
    text: str
    met: Callable[[Series, Series], bool]
    """Given ours and theirs."""


class Row(NamedTuple):
    bench: str
    what: str
    ours: Series
    against: str = ""
    theirs: Series | None = None
    budget: Budget | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.ours.median / self.theirs.median

    @property
    def met(self) -> bool | None:
        return None if self.budget is None else self.budget.met(self.ours, self.theirs or self.ours)


def at_most(limit: float, text: str) -> Budget:
    return Budget(text, lambda ours, _theirs: ours.median <= limit)


def times(limit: float) -> Budget:
    return Budget(f"≤ {limit:g}×", lambda ours, theirs: ours.median <= limit * theirs.median)


def more(limit: float, text: str) -> Budget:
    return Budget(text, lambda ours, theirs: ours.median - theirs.median <= limit)


def interleave(contestants: Mapping[str, Contestant], rounds: int, warm_up: int = 1) -> dict[str, Series]:
    """Let all contestants run in turn, ``rounds`` times; the first ``warm_up`` rounds do not count."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(warm_up + rounds):
        for name, contestant in contestants.items():
            seconds = contestant()
            if number >= warm_up:
                found[name] += seconds
    return {name: Series(tuple(values)) for name, values in found.items()}


def versus(
    bench: str,
    what: str,
    ours: Series,
    others: Mapping[str, Series],
    budgets: Mapping[str, Budget],
) -> list[Row]:
    """A row for each alternative. ``budgets`` are by the name of the alternative they are measured against; one by
    any other name needs none."""
    alone = [budget for name, budget in budgets.items() if name not in others]
    rows = [Row(bench, what, ours, name, theirs, budgets.get(name)) for name, theirs in others.items()]
    if not rows:
        return [Row(bench, what, ours, budget=budget) for budget in alone or [None]]
    for budget in alone:  # it goes where there is room
        free = next((index for index, row in enumerate(rows) if row.budget is None), None)
        if free is None:
            rows.insert(0, Row(bench, what, ours, budget=budget))
        else:
            rows[free] = rows[free]._replace(budget=budget)
    return rows


def seconds_of(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def command(argv: Sequence[str | bytes], cwd: bytes | None = None, env: Mapping[bytes, bytes] | None = None) -> None:
    """Run a command, its output dropped. Raises CalledProcessError if it fails."""
    subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def timed(
    argv: Sequence[str | bytes], cwd: bytes | None = None, env: Mapping[bytes, bytes] | None = None
) -> Contestant:
    return lambda: [seconds_of(lambda: command(argv, cwd, env))]


def _scale(value: float, unit: str) -> tuple[float, str]:
    if unit != "s":
        return 1, unit
    if value >= 1:
        return 1, "s"
    return (1e3, "ms") if value >= 1e-3 else (1e6, "µs")


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
