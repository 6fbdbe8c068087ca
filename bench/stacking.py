"""Fork, checkpoint, rollback and discard by the size of the project: it must not matter. Beside what else does that.

All of ours are durable across processes, as are those of cp, git and btrfs; those of sandfs live in memory. What takes
seconds is measured less often than what takes milliseconds, and for the largest project once.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.measure import (
    Against,
    Contestant,
    Finding,
    Lap,
    Series,
    against,
    at_most,
    at_most_times,
    clocked,
    interleave,
    seconds_of,
    unmeasured,
)
from bench.place import Place, Scale, fill, fill_empty, have, make_repository, new_place
from bench.rivals import Copies, Mudroom, Rival, Sandfs, Worktrees, absent, can_snapshot, sandfs, snapshots
from mudroom.session import Session

_RIVALS = (Copies.name, Worktrees.name, "btrfs snapshot", Sandfs.name)
_OPERATIONS = ("fork", "checkpoint", "fork of a fork", "rollback", "discard")
_AFTER_PAUSE = "checkpoint, nothing done for a second"
_JUST_WRITTEN = "checkpoint, a file just written by a tool"
_OPENED, _FIRST = "a session opened, its file tools ready", "the same in a project never seen"
_LARGE = 100_000
"""Files. From here on they are empty, and what copies them does so once."""
_SELDOM = 5
_PAUSE = 1.1
"""Seconds. What mudroom keeps in mind for a moment it has forgotten by then, as between the turns of an agent."""


def stacks(base: bytes, scale: Scale) -> Iterator[Finding]:
    for rival, why in absent():
        yield unmeasured("stack", f"the same by {rival}", why)
    with ExitStack() as stack:
        warm = stack.enter_context(_warm(base))
        begun: list[Contestant] = []
        ours: list[Contestant] = []
        others: list[Contestant] = []
        for size in scale.stacks:
            place = stack.enter_context(new_place(base, f"stack-{size}"))
            _fill(place.project, size)
            if have("git"):
                make_repository(place.project, place.environ)
            session = stack.enter_context(place.session())
            mudroom = Mudroom(session)
            begun.append(_begun(mudroom, size))
            ours.append(_ours(mudroom, size))
            others += _opened(place, size)
            others += _others(place, size, scale.stack_rounds, stack)
        found = interleave([warm, *begun, _pause, warm, *ours, *others], scale.stack_rounds)
    for what in (*_OPERATIONS, _AFTER_PAUSE, _JUST_WRITTEN):
        for size in scale.stacks:
            yield _finding(found, what, size, scale.stacks[0], "5 ms")
    for what in (_OPENED, _FIRST):
        for size in scale.stacks:
            yield _finding(found, what, size, scale.stacks[0], "")


def _fill(directory: bytes, size: int) -> None:
    (fill if size < _LARGE else fill_empty)(directory, size)


def _finding(found: dict[str, Series], what: str, size: int, smallest: int, budget: str) -> Finding:
    rivals = against(found, [f"{what}, {rival}, {size}" for rival in _RIVALS])
    shown = tuple(other._replace(name=other.name.split(", ")[-2]) for other in rivals)
    if size != smallest:
        flat = at_most_times(1.5) if budget else None
        shown = (*shown, Against(f"the same with {smallest} files", found[f"{what}, mudroom, {smallest}"], flat))
    limit = at_most(0.005, budget) if budget else None
    return Finding("stack", f"{what}, {size:,} files", found[f"{what}, mudroom, {size}"], limit, shown)


@contextmanager
def _warm(base: bytes) -> Iterator[Contestant]:
    """Does what is measured next, unmeasured: else whoever comes first pays for the pause, or for what was before."""
    with new_place(base, "stack-warm") as place:
        fill(place.project, 10)
        with place.session() as session:
            contestant = _whole(Mudroom(session), 0)

            def measure() -> Iterator[Lap]:
                for _ in range(3):
                    list(contestant())
                yield from ()

            yield measure


def _begun(mudroom: Mudroom, size: int) -> Contestant:
    def measure() -> Iterator[Lap]:
        yield f"fork, mudroom, {size}", seconds_of(mudroom.fork)
        mudroom.change(b"nothing yet\n")

    return measure


def _pause() -> Iterator[Lap]:
    time.sleep(_PAUSE)
    yield from ()


def _ours(mudroom: Mudroom, size: int) -> Contestant:
    """Goes on after ``_begun`` and the pause."""

    def measure() -> Iterator[Lap]:
        yield f"{_AFTER_PAUSE}, mudroom, {size}", seconds_of(lambda: mudroom.checkpoint("before"))
        mudroom.write(b"written\n")
        yield f"{_JUST_WRITTEN}, mudroom, {size}", seconds_of(lambda: mudroom.checkpoint("written"))
        yield from _in_fork(mudroom, size)
        mudroom.clear()

    return measure


def _whole(rival: Rival, size: int) -> Contestant:
    def measure() -> Iterator[Lap]:
        yield f"fork, {rival.name}, {size}", seconds_of(rival.fork)
        yield from _in_fork(rival, size)
        rival.clear()

    return measure


def _in_fork(rival: Rival, size: int) -> Iterator[Lap]:
    """Each with a change in the tree, so that there is something to freeze and to drop."""
    rival.change(b"one\n")
    yield f"checkpoint, {rival.name}, {size}", seconds_of(rival.checkpoint)
    yield f"fork of a fork, {rival.name}, {size}", seconds_of(rival.branch)
    rival.change(b"two\n")
    yield f"rollback, {rival.name}, {size}", seconds_of(rival.rollback)
    yield f"discard, {rival.name}, {size}", seconds_of(rival.discard)


def _others(place: Place, size: int, rounds: int, stack: ExitStack) -> Iterator[Contestant]:
    every = rounds if size >= _LARGE else _SELDOM
    module = sandfs()
    if module is not None:
        yield _whole(Sandfs(module, place), size)
    if can_snapshot():
        yield _whole(stack.enter_context(snapshots(place, lambda tree: _fill(tree, size))), size)
    yield _seldom(_whole(Copies(place), size), every)
    if have("git"):
        yield _seldom(_whole(Worktrees(place), size), every)


def _seldom(contestant: Contestant, every: int) -> Contestant:
    """Only one round of so many: not the first, which does not count, and the last of each."""
    rounds = itertools.count()

    def measure() -> Iterator[Lap]:
        number = next(rounds)
        if number and number % every == 0:
            yield from contestant()

    return measure


def _opened(place: Place, size: int) -> Iterator[Contestant]:
    """What a process pays before its first call: it looks at all directories of the project, for secrets. The vault
    keeps an index of them."""

    def open_session() -> Session:
        session = Session.open(place.project, state=place.state, home=place.home, environ=place.environ)
        session.forks.secrets.look()
        return session

    def known() -> Iterator[Lap]:
        seconds, session = clocked(open_session)
        session.close()
        yield f"{_OPENED}, mudroom, {size}", seconds

    def never_seen() -> Iterator[Lap]:
        with open_session() as session:
            os.unlink(session.vault.path + b"/secrets")
        seconds, session = clocked(open_session)
        session.close()
        yield f"{_FIRST}, mudroom, {size}", seconds

    yield known
    yield _seldom(never_seen, _SELDOM)
