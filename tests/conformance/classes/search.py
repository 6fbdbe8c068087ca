"""Generated lines, run for a time: those whose classes do not admit what they did.

Only lines that are classed neither ``unknown`` nor ``host_escape_risk`` are run: these classes admit everything. A line
that had an effect is run again in other shells, wrappers and positions.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from mudroom.core.command.program.classification import classify_line
from mudroom.core.command.verdict import CommandClass

from .comparison import DEMANDS, effects, least, missing
from .generation import Program, drawn_calls, first_calls, quoted, set_calls, wrapped
from .runner import Line, Ran, Runner
from .survey import installed, survey
from .world import PROJECT, words

FREE: frozenset[CommandClass] = frozenset(DEMANDS["ran"])
"""Classes that admit everything."""
_TOGETHER = 24
"""Programs of one round."""
_PAGED = words("git less more most man info bat batcat apt psql sqlite3 systemctl journalctl ag ack rg gdb dpkg script")
"""Programs that do more at a terminal; a part of their lines has one."""


class Disagreement(NamedTuple):
    program: str
    line: str
    classes: tuple[CommandClass, ...]
    effects: tuple[str, ...]
    """Those that the classes do not admit."""
    minimum: tuple[CommandClass, ...]
    """The least classes that would."""


class Report(NamedTuple):
    lines: int
    seconds: float
    seen: Counter[str]
    """Lines by effect."""
    disagreements: tuple[Disagreement, ...]


def classes_of(line: str) -> tuple[CommandClass, ...]:
    where = PROJECT.encode()
    return classify_line(line.encode(), project=where, cwd=where).classes


def is_run(line: str) -> bool:
    return not FREE.intersection(classes_of(line))


def judge(
    ran: Iterable[Ran], known: Callable[[str], bool] = lambda _line: False
) -> tuple[Counter[str], list[Disagreement]]:
    """Return the number of lines by effect, and the disagreements of lines that are not ``known``."""
    seen: Counter[str] = Counter()
    found = []
    for line, observed in ran:
        had = effects(observed, line.text)
        seen.update(had)
        seen.update(["ended the harness"] * (observed.end == "harness"))
        classes = classes_of(line.text)
        if (lacking := missing(had, classes)) and not known(line.text):
            found.append(Disagreement(line.program, line.text, classes, lacking, least(had)))
    return seen, found


def search(
    runner: Runner, *, seconds: float, seed: str, path: str, only: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _text: None, known: Callable[[str], bool] = lambda _line: False,
) -> Report:  # fmt: skip
    """Run lines of programs in a drawn order until the time is over. ``only``: names of programs."""
    chance = random.Random(seed)
    waiting = [called for called in installed(path) if not only or called[0] in only]
    chance.shuffle(waiting)
    end = time.monotonic() + seconds
    seen: Counter[str] = Counter()
    found: list[Disagreement] = []
    while time.monotonic() < end and waiting:
        together, waiting = waiting[:_TOGETHER], waiting[_TOGETHER:]
        lines = [line for program in survey(runner, together) for line in lines_of(program, chance)]
        first = list(runner.run(lines))
        for ran in (first, runner.run(list(varied([one.line for one in first], chance)))):
            counted, new = judge(ran, known)
            seen += counted
            found += new
        tell(f"{runner.count} lines, {len(found)} disagreements")
    return Report(runner.count, runner.seconds, seen, tuple(found))


def lines_of(program: Program, chance: random.Random, each: int = 120) -> Iterator[Line]:
    """Yield lines of a program: options with the first values, variables, and drawn calls."""
    first, variables = list(first_calls(program)), list(set_calls(program))
    drawn = itertools.islice(drawn_calls(program, chance), each)
    chosen = [
        *chance.sample(first, min(each, len(first))),
        *chance.sample(variables, min(each, len(variables))),
        *drawn,
    ]
    name = " ".join(program.words)
    for text in dict.fromkeys(call.text() for call in chosen):
        if is_run(text):
            yield Line(name, text, program.words[0] in _PAGED and chance.random() < 0.3)


def varied(lines: Sequence[Line], chance: random.Random, each: int = 3) -> Iterator[Line]:
    """Yield lines in other shells, wrappers and quotes."""
    for line in lines:
        for text in dict.fromkeys((*wrapped(line.text, chance, each), quoted(line.text, chance))):
            if is_run(text):
                yield line._replace(text=text)
