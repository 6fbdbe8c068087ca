"""A fork and its discard, by the size of the project: it must not matter. Beside what else gives one a private tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from bench.measure import (
    Against,
    Contestant,
    Finding,
    Lap,
    Rival,
    against,
    at_most,
    at_most_times,
    clocked,
    command,
    interleave,
    seconds_of,
)
from bench.place import Place, Scale, discard, fill, have, make_repository, new_place, run
from mudroom.session import Session
from mudroom.vault.forks.collection import view_of
from mudroom.vault.forks.open_fork import OpenFork

_FORKS = 40
_COPIED = 10_000
"""Larger projects are not copied: it takes too long, and the answer is known by then."""
_FLAT = at_most_times(1.5)


def forks(base: bytes, scale: Scale) -> Iterator[Finding]:
    with ExitStack() as stack:
        contestants: list[Contestant] = []
        for size in scale.projects:
            place = stack.enter_context(new_place(base, f"fork-{size}"))
            fill(place.project, size)
            if have("git") and size <= _COPIED:
                make_repository(place.project, place.environ)
            session = stack.enter_context(place.session())
            contestants += [_fork(session, size), _fork_and_run(session, size)]
            if size <= _COPIED:
                contestants += _alternatives(place, size)
        found = interleave(contestants, scale.applies)
    smallest = scale.projects[0]
    for size in scale.projects:
        others = against(found, [f"cp -a and rm -rf, {size}", f"git worktree add and remove, {size}"])
        shown = tuple(other._replace(name=other.name.rpartition(",")[0]) for other in others)
        if size != smallest:
            shown = (*shown, Against(f"the same with {smallest} files", found[f"fork {smallest}"], _FLAT))
        what = f"fork and discard, a project of {size:,} files"
        yield Finding("fork", what, found[f"fork {size}"], at_most(0.005, "5 ms"), shown)
    flat = against(
        {f"with {smallest} files": found[f"run {smallest}"]},
        [f"with {smallest} files"],
        {f"with {smallest} files": _FLAT},
    )
    yield Finding(
        "fork", f"true in a session, {scale.projects[-1]:,} files", found[f"run {scale.projects[-1]}"], None, flat
    )


def _fork(session: Session, size: int) -> Contestant:
    def forked() -> None:
        fork = session.vault.new_fork("bench")
        with OpenFork(session.vault, fork) as opened:
            view_of(session.vault, fork, opened, "overlay").prepare()
        session.vault.discard(fork)

    return lambda: [(f"fork {size}", seconds_of(forked)) for _ in range(_FORKS)]


def _fork_and_run(session: Session, size: int) -> Contestant:
    def measure() -> Iterator[Lap]:
        for _ in range(_FORKS):
            seconds, result = clocked(lambda: run(session, "/bin/true"))
            yield f"run {size}", seconds
            discard(session, result)

    return measure


def _alternatives(place: Place, size: int) -> list[Contestant]:
    copy = place.root + b"/copy"

    def copied() -> None:
        command(["cp", "-a", place.project, copy])
        command(["rm", "-rf", copy])

    def worktree() -> None:
        git = [b"git", b"-C", place.project, b"worktree"]
        command([*git, b"add", b"-q", b"--detach", copy], env=place.environ)
        command([*git, b"remove", b"--force", copy], env=place.environ)

    name = f"git worktree add and remove, {size}"
    return [
        lambda: [(f"cp -a and rm -rf, {size}", seconds_of(copied))],
        Rival(lambda: [(name, seconds_of(worktree))], name),
    ]
