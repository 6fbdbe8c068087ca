"""Measure things side by side: interleaved, so that a drift of the machine touches all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Figure(NamedTuple):
    median: float
    least: float
    most: float
    """Seconds."""


def side_by_side(contestants: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2) -> dict[str, Figure]:
    """Call every contestant once per round; figures by name."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(warm_up + rounds):
        for name, call in contestants.items():
            start = time.perf_counter()
            call()
            if number >= warm_up:
                samples[name].append(time.perf_counter() - start)
    return {name: figure(found) for name, found in samples.items()}


def figure(samples: list[float]) -> Figure:
    return Figure(statistics.median(samples), min(samples), max(samples))
