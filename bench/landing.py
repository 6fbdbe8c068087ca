"""Collecting, applying and undoing many files, beside what copies trees, cp and rsync, and what patches them.

An apply is durable when it returns and keeps what it replaced. cp and rsync do neither, so rsync is also measured with
the ``sync -f`` that makes it durable. What one contestant leaves unwritten is synced before the next one begins.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from bench.measure import (
    Budget,
    Contestant,
    Finding,
    Found,
    Lap,
    Rival,
    Series,
    against,
    at_most,
    at_most_times,
    clocked,
    command,
    interleave,
    seconds_of,
)
from bench.place import Place, Scale, discard, fill, have, new_place, run, tick
from mudroom.core.result import Result
from mudroom.session import Session
from mudroom.stage.disk import sync_filesystem
from mudroom.stage.layers.layer import remove_tree

Argv = Sequence[str | bytes]

_FILL = """
import os, sys
for start in range(0, int(sys.argv[1]), 100):
    below = "new/d%04d" % (start // 100)
    os.makedirs(below)
    for number in range(start, start + 100):
        with open("%s/f%06d.txt" % (below, number), "wb") as stream:
            stream.write(b"file %d\\n" % number * (4 + number % 60))
"""
_MODIFY = """
import os
for directory, _directories, files in os.walk("."):
    for name in files:
        with open(os.path.join(directory, name), "ab") as stream:
            stream.write(b"one more line\\n")
"""
_PYTHON = [sys.executable, "-I", "-S", "-c"]
SYNCFS, _DURABLE = "syncfs of the same files", "rsync -a; sync -f"


def many_added(base: bytes, scale: Scale, only: Collection[str] = ()) -> Iterator[Finding]:
    """One new directory with very many small files. ``only``: these contestants, and no round that does not count."""
    with new_place(base, "added") as place:
        fill(place.project, 10)
        source, target = place.root + b"/source", place.root + b"/target"
        os.mkdir(source)
        os.mkdir(target)
        make = [*_PYTHON, _FILL, str(scale.added)]
        command(make, source)
        ways: dict[str, Argv] = {name: [*name.split(), source + b"/new", target] for name in ("cp -a", "rsync -a")}
        found = _measure(place, make, ways, target, ("rm -rf", ["rm", "-rf", target + b"/new"]), scale.applies, only)
    relative = {SYNCFS: at_most_times(2)}
    yield from _findings(f"{scale.added:,} new files", found, None, relative, "rm -rf")


def many_modified(base: bytes, scale: Scale, only: Collection[str] = ()) -> Iterator[Finding]:
    """Very many files changed, each in its own place. ``only``: as for ``many_added``."""
    with new_place(base, "modified") as place:
        fill(place.project, scale.modified)
        source, target, backup = (place.root + b"/" + name for name in (b"source", b"target", b"backup"))
        for copy in (source, target, backup):
            command(["cp", "-a", place.project, copy])
        make = [*_PYTHON, _MODIFY]
        command(make, source)
        patch = place.root + b"/patch"
        with open(patch, "wb") as stream:
            words = ["git", "diff", "--no-index", "--no-prefix", "--no-renames", "target", "source"]
            if have("git"):
                subprocess.run(words, cwd=place.root, stdout=stream, check=False)  # 1: they differ
        ways: dict[str, Argv] = {
            "rsync -a": ["rsync", "-a", source + b"/", target + b"/"],
            "cp -a": ["cp", "-a", source + b"/.", target],
            "git apply": ["git", "-C", target, "apply", "-p1", "--whitespace=nowarn", patch],
        }
        back: Argv = ["rsync", "-a", backup + b"/", target + b"/"]
        if not have("rsync"):
            back = ["cp", "-a", backup + b"/.", target]
        found = _measure(place, make, ways, target, ("rsync -a back", back), scale.applies, only)
    budget = at_most(0.00025 * scale.modified, f"0.25 ms per file: {0.25 * scale.modified / 1000:g} s")
    relative = {"rsync -a": at_most_times(1)}
    yield from _findings(f"{scale.modified:,} modified files", found, budget, relative, "rsync -a back")


def _measure(
    place: Place,
    make: Sequence[str],
    ways: Mapping[str, Argv],
    target: bytes,
    back: tuple[str, Argv],
    rounds: int,
    only: Collection[str],
) -> Found:
    with place.session() as session:
        contestants: dict[str, Contestant] = {
            "apply, at once": _apply(session, make, "apply, at once", reviewed=False),
            "discard": _discard(session, make),
            "apply, reviewed": _apply(session, make, "apply, reviewed", reviewed=True),
            **{name: _copy(name, [argv], back) for name, argv in ways.items()},
            _DURABLE: _copy(_DURABLE, [ways["rsync -a"], ["sync", "-f", target]], back),
            "rsync -ain": Rival(_dry_run(ways["rsync -a"]), "rsync -ain"),
            SYNCFS: _synced(place, make),
        }
        chosen = [contestant for name, contestant in contestants.items() if not only or name in only]
        return interleave(chosen, rounds, warm_up=0 if only else 1)


def _apply(session: Session, make: Sequence[str], name: str, *, reviewed: bool) -> Contestant:
    """Either at once, as ``mudroom run --yes`` does it; or after a pause in which the staged files reach the disk
    and the fork is unlocked, so that it is compared with what was reviewed."""

    def measure() -> Iterator[Lap]:
        os.sync()
        result, laps = _staged(session, make)
        yield from laps
        if reviewed:
            os.sync()
        yield name, seconds_of(lambda: session.changes.apply(result.fork))
        os.sync()
        yield "undo", seconds_of(session.changes.undo)

    return measure


def _discard(session: Session, make: Sequence[str]) -> Contestant:
    def measure() -> Iterator[Lap]:
        result, laps = _staged(session, make)
        yield from laps
        os.sync()
        yield "discard", seconds_of(lambda: discard(session, result))

    return measure


def _staged(session: Session, make: Sequence[str]) -> tuple[Result, list[Lap]]:
    """Run the command that makes the files; what comes after it, in the session, is the collecting."""
    tick()
    seconds, result = clocked(lambda: run(session, *make))
    return result, [("collect", seconds - result.duration)]


def _copy(name: str, commands: Sequence[Argv], back: tuple[str, Argv]) -> Contestant:
    def copy() -> None:
        for argv in commands:
            command(argv)

    def measure() -> Iterator[Lap]:
        os.sync()
        yield name, seconds_of(copy)
        os.sync()
        yield back[0], seconds_of(lambda: command(back[1]))

    return Rival(measure, name)


def _synced(place: Place, make: Sequence[str]) -> Contestant:
    """What syncfs(2) takes after the same command has made the same files without mudroom: less is not durable."""

    def measure() -> Iterator[Lap]:
        bare = place.root + b"/bare"
        if os.path.isdir(bare):
            remove_tree(bare)
        command(["cp", "-a", place.project, bare])
        os.sync()
        command(make, bare)
        descriptor = os.open(bare, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield SYNCFS, seconds_of(lambda: sync_filesystem(descriptor))
        finally:
            os.close(descriptor)

    return measure


def _dry_run(argv: Argv) -> Contestant:
    """What would change, as rsync finds it out."""
    return lambda: [("rsync -ain", seconds_of(lambda: command([*argv, "-in"])))]


def _findings(
    what: str, found: Mapping[str, Series], budget: Budget | None, relative: Mapping[str, Budget], back: str
) -> Iterator[Finding]:
    copies = ("cp -a", "rsync -a", _DURABLE, "git apply", SYNCFS)
    yield Finding("apply", f"collect {what}", found["collect"], None, against(found, ["rsync -ain"]))
    for name in (name for name in ("apply, at once", "apply, reviewed") if name in found):
        verb, _comma, when = name.partition(", ")
        yield Finding("apply", f"{verb} {what}, {when}", found[name], budget, against(found, copies, relative))
    yield Finding("apply", f"undo {what}", found["undo"], None, against(found, [back]))
    if "discard" in found:
        yield Finding("apply", f"discard {what}", found["discard"], None, against(found, ["rm -rf"]))
