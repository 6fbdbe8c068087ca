"""Chance that can be had again: of a seed, and of the number of a step."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance(random.Random):
    """For one step."""

    def __init__(self, seed: int, step: int) -> None:
        super().__init__(f"{seed}/{step}")

    def one(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def weighed(self, weights: Mapping[T, float]) -> T:
        """Things, and how often they are to come."""
        at = self.random() * sum(weights.values())
        for thing, weight in weights.items():
            at -= weight
            if at < 0:
                return thing
        return list(weights)[-1]


class Walk:
    """The steps that were gone, for whoever wants to go them again."""

    def __init__(self, seed: int, *, seconds: float = 0.0, steps: int = 0, loud: bool = False) -> None:
        """Ends after so many steps, or so many seconds."""
        self.seed, self.steps, self.loud = seed, steps, loud
        self.until = time.monotonic() + seconds if seconds else None
        self.number = 0
        self.said: list[str] = []

    def next(self) -> Chance | None:
        """For the next step; None: it was enough."""
        if (self.steps and self.number >= self.steps) or (self.until is not None and time.monotonic() > self.until):
            return None
        self.number += 1
        return Chance(self.seed, self.number)

    def say(self, text: str) -> None:
        self.said.append(f"{self.number:>5} {text}")
        if self.loud:
            print(self.said[-1], flush=True)  # noqa: T201 - dev/monkey asks for it

    def require(self, wrong: Sequence[str], what: str) -> None:
        """Fails with the way here."""
        if wrong:
            self.fail(what + ": " + "; ".join(wrong))

    def fail(self, what: str) -> None:
        way = "\n".join(self.said[-60:])
        raise Astray(f"seed {self.seed}, step {self.number}: {what}\nThe last steps:\n{way}")


class Astray(AssertionError):
    """Something that must never happen has."""
