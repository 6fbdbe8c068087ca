"""Every verb as a whole process, by the size of the project: processor time, and system calls where strace is there.

What is linear is told without a budget: a process for one command looks at each directory once (``secrets``).
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from bench.measure import Against, Budget, Contestant, Finding, Lap, Series, at_most_times, interleave, unmeasured
from bench.place import Place, Scale, discard, fill_empty, have, new_place, run
from bench.small import program
from mudroom.session import Session

_FLAT_TIME = at_most_times(1.5)
_FLAT_CALLS = at_most_times(1.05)
_WATCHED = 6
"""Commands until a session is told of changes: it looks for itself at first."""


class Verb(NamedTuple):
    arguments: tuple[str, ...]
    is_linear: bool = False
    """Looks at each directory of the project."""


VERBS = (
    Verb(("exec", "--fork", "f", "--", "sh", "-c", "echo more >> d0000/f000000.txt; echo new > new"), is_linear=True),
    Verb(("exec", "--fork", "f", "--", "true"), is_linear=True),
    Verb(("ls",)),
    Verb(("status",)),
    Verb(("diff", "f")),
    Verb(("checkpoint", "--fork", "f", "c")),
    Verb(("rollback", "--fork", "f", "--yes", "c")),
    Verb(("apply", "f", "--yes")),
    Verb(("undo", "--yes")),
    Verb(("redo", "--yes")),
    Verb(("undo", "--yes")),
    Verb(("discard", "f", "--yes")),
    Verb(("vault", "check")),
)
"""One round: it ends as it began."""


def growth(base: bytes, scale: Scale) -> Iterator[Finding]:
    with ExitStack() as stack:
        places = {size: _filled(stack, base, size) for size in scale.stacks}
        contestants = [_verbs(place, size) for size, place in places.items()]
        if have("strace"):
            contestants += [_calls(place, size) for size, place in places.items()]
        # the first round lists all directories, and in the second the last stamps have become reliable
        found = interleave(contestants, scale.applies, warm_up=2)
        found |= interleave([_in_session(stack, place, size) for size, place in places.items()], 1, warm_up=1)
    if not have("strace"):
        yield unmeasured("growth", "system calls of each verb", "strace is not installed")
    for what in dict.fromkeys((" ".join(verb.arguments[:1]), verb.is_linear) for verb in VERBS):
        yield from _findings(*what, found, scale.stacks)
    yield from _findings("true in a session", False, found, scale.stacks)


def _filled(stack: ExitStack, base: bytes, size: int) -> Place:
    place = stack.enter_context(new_place(base, f"growth-{size}"))
    fill_empty(place.project, size)
    return place


def _verbs(place: Place, size: int) -> Contestant:
    def measure() -> Iterator[Lap]:
        for verb in VERBS:
            before = _spent(resource.RUSAGE_CHILDREN)
            _perform([*program(), *verb.arguments], place)
            yield f"{verb.arguments[0]} time {size}", _spent(resource.RUSAGE_CHILDREN) - before

    return measure


def _calls(place: Place, size: int) -> Contestant:
    summary = place.root + b"/calls"

    def measure() -> Iterator[Lap]:
        for verb in VERBS:
            _perform(["strace", "-f", "-qq", "-c", "-o", os.fsdecode(summary), *program(), *verb.arguments], place)
            with open(summary) as stream:
                total = stream.read().splitlines()[-1].split()
            yield f"{verb.arguments[0]} calls {size}", float(total[3])

    return measure


def _in_session(stack: ExitStack, place: Place, size: int) -> Contestant:
    session: Session = stack.enter_context(place.session())

    def measure() -> Iterator[Lap]:
        for _command in range(_WATCHED):
            discard(session, run(session, "/bin/true"))
        for _command in range(20):
            before = _spent(resource.RUSAGE_SELF)
            result = run(session, "/bin/true")
            yield f"true in a session time {size}", _spent(resource.RUSAGE_SELF) - before
            discard(session, result)

    return measure


def _perform(argv: list[str], place: Place) -> None:
    """Raise RuntimeError, with what it said, if the command fails."""
    done = subprocess.run(
        argv, check=False, cwd=place.project, env=place.environ, stdin=subprocess.DEVNULL, capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed: {done.stderr.decode(errors='replace')}")


def _spent(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _findings(what: str, is_linear: bool, found: Mapping[str, Series], sizes: tuple[int, ...]) -> Iterator[Finding]:
    """Of the largest project, against the smaller ones."""
    for measure, unit, flat in (("time", "s", _FLAT_TIME), ("calls", "calls", _FLAT_CALLS)):
        series = {size: found.get(f"{what} {measure} {size}") for size in sizes}
        ours = series[sizes[-1]]
        if ours is None:
            continue
        budget: Budget | None = None if is_linear else flat
        others = tuple(
            Against(f"{size:,} files", seen._replace(unit=unit), budget)
            for size in sizes[:-1]
            if (seen := series[size]) is not None
        )
        yield Finding("growth", f"{what}, {sizes[-1]:,} files", ours._replace(unit=unit), None, others)
