"""The model stories (``tests/systems/story.py``) on a file system that is mounted again at each command, or loses power
in the middle of each and at its end. No test is here."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Container

from cuts import Cut, State, judged, moments
from remounted import SYSTEMS, Remounted
from story import Outcome
from tiers import SEED

PLACES = ("project", "state", "home", "model")
READING = ("ls", "status", "diff", "log", "fork ls")
Act = Callable[..., None]
"""Called with ``before`` or ``after`` and the words of a command."""


def tell(ground: Remounted, act: Act, *options: str) -> Outcome:
    """Play a story, and call ``act`` before and after each command, while no process uses the file system."""
    words = [*(f"/mnt/{name}" for name in PLACES), "--seed", SEED, "--paced", *options]
    with ground.start(SYSTEMS / "story.py", *words) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for line in process.stdout:
            step = json.loads(line)
            if isinstance(step, dict):
                return Outcome(**step)
            act(*step)
            process.stdin.write("\n")
            process.stdin.flush()
        raise AssertionError("the story itself failed")


class Remounts:
    """A clean remount before every ``each``-th command."""

    def __init__(self, ground: Remounted, each: int = 1) -> None:
        self._ground, self._each, self.count = ground, each, 0

    def __call__(self, moment: str, *_words: str) -> None:
        if moment == "before":
            self.count += 1
            if self.count % self._each == 0:
                self._ground.remount()


class PowerCuts:
    """Power is cut in the middle of commands that write, and at their end. The story goes on with what was found after
    the end, where all is durable."""

    def __init__(self, ground: Remounted, chosen: Container[int], most: int) -> None:
        self._ground, self._chosen, self._most = ground, chosen, most
        self._draw = random.Random(SEED)
        self._count = self._place = 0
        self._before: State = {}
        self.cuts: list[Cut] = []

    def __call__(self, moment: str, *words: str) -> None:
        verb = " ".join(words[:2]) if words[0] in ("fork", "vault") else words[0]
        if verb in READING:
            return
        if moment == "before":
            self._count += 1
        if self._count not in self._chosen:
            return
        if moment == "before":
            self._before = self._ground.look()
            self._place = self._ground.keep("before")
        else:
            self._cut("exec" if verb == "tools" else verb)

    def _cut(self, verb: str) -> None:
        ground, end = self._ground, self._ground.written()
        after = ground.look()
        aside = "live"
        for moment, cut, mixed in moments(ground, self._place, end, self._most, self._draw):
            ground.crash("cut", "before", self._place, cut, self._draw if mixed else None)
            ground.restore("cut", aside=aside)
            aside = ""
            self.cuts.append(judged(ground, verb, moment, self._before, after))
        if self.cuts[-1].verdict != "held":  # a command, whose writes were in the page cache
            ground.restore("live")
