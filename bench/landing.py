"""Collecting, applying and undoing many files, beside what copies trees: cp and rsync.

An apply is durable when it returns and keeps what it replaced; cp and rsync are neither, so rsync is also measured
together with the ``sync -f`` that makes it so. Before each contestant all that the last one left unwritten is synced.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator

from bench.measure import Contestant, Row, Series, at_most, command, interleave, seconds_of, timed, times, versus
from bench.place import Place, Scale, discard, fill, have, new_place, run, tick
from mudroom.core.result import Result
from mudroom.session import Session

_MODIFY = """
import os
for directory, _directories, files in os.walk("."):
    for name in files:
        with open(os.path.join(directory, name), "ab") as stream:
            stream.write(b"one more line\\n")
"""
_PYTHON = [sys.executable, "-I", "-S", "-c"]

Make = Callable[[], Result]


class _Stopwatch:
    """Series that come up on the way of another measurement."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}

    def note(self, name: str, seconds: float) -> None:
        self.found.setdefault(name, []).append(seconds)

    def series(self, name: str) -> Series:
        """The first is the warm-up."""
        return Series(tuple(self.found[name][1:]))


def many_added(base: bytes, scale: Scale) -> Iterator[Row]:
    """One new directory with very many small files."""
    with new_place(base, "added") as place:
        source, target = place.root + b"/source", place.root + b"/target"
        os.mkdir(source)
        os.mkdir(target)
        fill(source + b"/new", scale.added)
        fill(place.project, 10)
        script = f"import sys; sys.path.insert(0, {os.getcwd()!r}); from bench.place import fill; fill(b'new', {scale.added})"
        watch = _Stopwatch()
        with place.session() as session:
            session.settings = session.settings._replace(read=(os.fsencode(os.getcwd()),))

            def make() -> Result:
                return _measured_run(session, watch, sys.executable, "-c", script)

            clear = ["rm", "-rf", target + b"/new"]
            contestants = _mudroom(session, make, watch)
            contestants |= _copies(
                {
                    "cp -a": [["cp", "-a", source + b"/new", target]],
                    "rsync -a": [["rsync", "-a", source + b"/new", target]],
                    "rsync -a; sync -f": [["rsync", "-a", source + b"/new", target], ["sync", "-f", target]],
                },
                clear,
                "rm -rf",
                watch,
            )
            contestants["rsync -ain"] = timed(["rsync", "-ain", source + b"/new", target])
            if not have("rsync"):
                contestants = {name: one for name, one in contestants.items() if not name.startswith("rsync")}
            found = interleave(contestants, scale.applies)
    yield from _rows(f"{scale.added:,} new files", found, watch, {"": at_most(0.100, "≤ 100 ms")}, "rm -rf")


def many_modified(base: bytes, scale: Scale) -> Iterator[Row]:
    """Very many files changed, each in its own place."""
    with new_place(base, "modified") as place:
        source, target, backup = (place.root + b"/" + name for name in (b"source", b"target", b"backup"))
        fill(place.project, scale.modified)
        for copy in (source, target, backup):
            command(["cp", "-a", place.project, copy])
        time.sleep(1.1)  # rsync tells a change by size and whole seconds
        command([*_PYTHON, _MODIFY], source)
        watch = _Stopwatch()
        with place.session() as session:

            def make() -> Result:
                return _measured_run(session, watch, *_PYTHON, _MODIFY)

            contestants = _mudroom(session, make, watch)
            if have("rsync"):
                copying = ["rsync", "-a", source + b"/", target + b"/"]
                contestants |= _copies(
                    {"rsync -a": [copying], "rsync -a; sync -f": [copying, ["sync", "-f", target]]},
                    ["rsync", "-a", backup + b"/", target + b"/"],
                    "rsync -a back",
                    watch,
                )
                contestants["rsync -ain"] = timed(["rsync", "-ain", source + b"/", target + b"/"])
            found = interleave(contestants, scale.applies)
    budget = at_most(0.0003 * scale.modified, f"≤ 0.3 ms per file: {0.3 * scale.modified / 1000:g} s")
    budgets = {"": budget, "rsync -a": times(1)}
    yield from _rows(f"{scale.modified:,} modified files", found, watch, budgets, "rsync -a back")


def _measured_run(session: Session, watch: _Stopwatch, *argv: str) -> Result:
    tick()
    results: list[Result] = []
    seconds = seconds_of(lambda: results.append(run(session, *argv)))
    watch.note("collect", seconds - results[0].duration)
    return results[0]


def _mudroom(session: Session, make: Make, watch: _Stopwatch) -> dict[str, Contestant]:
    def landing(*, review: bool) -> Contestant:
        def measure() -> list[float]:
            os.sync()
            result = make()
            if review:
                os.sync()
            seconds = seconds_of(lambda: session.apply(result.fork, verify_fork=review))
            os.sync()
            watch.note("undo", seconds_of(session.undo))
            return [seconds]

        return measure

    def thrown_away() -> list[float]:
        result = make()
        os.sync()
        return [seconds_of(lambda: discard(session, result))]

    return {"apply": landing(review=False), "apply, reviewed": landing(review=True), "discard": thrown_away}


def _copies(
    ways: dict[str, list[list[str | bytes]]], back: list[str | bytes], name_back: str, watch: _Stopwatch
) -> dict[str, Contestant]:
    def copying(commands: list[list[str | bytes]]) -> Contestant:
        def measure() -> list[float]:
            os.sync()
            seconds = sum(seconds_of(lambda argv=argv: command(argv)) for argv in commands)  # type: ignore[misc]
            os.sync()
            watch.note(name_back, seconds_of(lambda: command(back)))
            return [seconds]

        return measure

    return {name: copying(commands) for name, commands in ways.items()}
