"""Programs that look through a tree, in the view and outside of it.

Timed by a small loop next to the program, inside the sandbox too: what a sandbox costs to start is not in it. Every
command gets a mount of its own, whose caches are empty, so the first time is told apart from the ones after it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from bench.measure import Contestant, Row, Series, interleave, times, versus
from bench.place import Place, Scale, discard, fill, have, make_repository, new_place, run
from mudroom.session import Session

_AGAIN = 4
_LOOP = """
import subprocess, sys, time
for _ in range(int(sys.argv[1])):
    started = time.perf_counter()
    subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, check=True)
    print(time.perf_counter() - started)
"""
_WRITE = """
import os, sys
for number in range(int(sys.argv[1])):
    with open(f"new-{number}", "wb") as stream:
        stream.write(b"x" * 1000)
for number in range(int(sys.argv[1])):
    os.unlink(f"new-{number}")
"""
_PYTHON = [sys.executable, "-I", "-S", "-c"]


def workloads(base: bytes, scale: Scale) -> Iterator[Row]:
    commands = {
        "git status": ["git", "status", "--porcelain"],
        "find . -type f": ["find", ".", "-type", "f"],
        "grep -r": ["grep", "-r", "file 1234", "."],
        "write and remove files": [*_PYTHON, _WRITE, str(scale.tree // 20)],
    }
    with new_place(base, "view") as place:
        fill(place.project, scale.tree)
        if have("git"):
            make_repository(place.project, place.environ)
        else:
            del commands["git status"]
        with place.session() as session:
            contestants: dict[str, Contestant] = {}
            for name, argv in commands.items():
                contestants |= _pair(name, place, session, argv)
            found = interleave(contestants, scale.looks)
    for name in commands:
        first, again = _apart(found[name])
        bare = _apart(found[name + ", bare"])[1]
        what = f"{name} ({scale.tree:,} files)" if name in ("git status", "find . -type f", "grep -r") else name
        yield from versus("view", what + ", first", first, {"bare tree": bare}, {"bare tree": times(1.15)})
        yield from versus("view", what + ", again", again, {"bare tree": bare}, {"bare tree": times(1.15)})


def _pair(name: str, place: Place, session: Session, argv: list[str]) -> dict[str, Contestant]:
    loop = [*_PYTHON, _LOOP, str(1 + _AGAIN), *argv]

    def staged() -> list[float]:
        result = run(session, *loop)
        discard(session, result)
        return [float(line) for line in result.stdout.split()]

    def bare() -> list[float]:
        output = subprocess.run(loop, cwd=place.project, env=place.environ, check=True, stdout=subprocess.PIPE).stdout
        return [float(line) for line in output.split()]

    return {name: staged, name + ", bare": bare}


def _apart(series: Series) -> tuple[Series, Series]:
    """The first of each loop, and the rest."""
    each = 1 + _AGAIN
    first = tuple(value for index, value in enumerate(series.values) if index % each == 0)
    return Series(first), Series(tuple(value for index, value in enumerate(series.values) if index % each))
