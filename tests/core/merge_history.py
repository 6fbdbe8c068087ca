"""Merges what a real repository has merged, and compares with git: a tool to be run by hand, and by a small test.

    python tests/core/merge_history.py REPOSITORY          every file that both sides of a merge commit have changed
    python tests/core/merge_history.py REPOSITORY 4000     so many changes of single files, picked onto other versions

A change is picked (or, three times in ten, reverted) onto a version of the same file that is up to ten changes older or
newer. Only git's objects are read; nothing is checked out. It tells how often both were clean or in conflict, how often
mudroom alone saw a conflict (``cautious``: allowed), and every case of the other kind (``wrong``), with the blobs.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mudroom.core.merge.diff3 import merge3
from mudroom.core.merge.marker import why_not_mergeable
from triples import ENV, Triple, git_merge

_ROUGHLY = [1, 1, 2, 2, 3, 5, 10]


class Case(NamedTuple):
    """Ids of three blobs, and where they come from."""

    base: str
    ours: str
    theirs: str
    where: str


class Report(NamedTuple):
    counts: Counter[str]
    wrong: list[Case]
    cautious: list[Case]
    seconds: float
    """Spent on merging, ours and git's."""


def git(repository: Path, *words: str) -> str:
    run = subprocess.run(["git", "-C", str(repository), *words], env=ENV, capture_output=True, check=True)
    return run.stdout.decode(errors="surrogateescape")


def merges(repository: Path) -> Iterator[Case]:
    """Yields the files that both parents of a merge commit have changed."""
    for line in git(repository, "rev-list", "--merges", "--parents", "HEAD").splitlines():
        merge, *parents = line.split()
        if len(parents) != 2:
            continue
        try:
            base = git(repository, "merge-base", *parents).split()[0]
            ours, theirs = (dict(_modified(repository, base, parent)) for parent in parents)
        except subprocess.CalledProcessError:
            continue  # unrelated histories, or a shallow clone
        for path in sorted(ours.keys() & theirs.keys()):
            yield Case(ours[path][0], ours[path][1], theirs[path][1], f"{merge} {path}")


def _modified(repository: Path, old: str, new: str) -> Iterator[tuple[str, tuple[str, str]]]:
    yield from _raw(git(repository, "diff-tree", "-r", "--no-renames", "--raw", "--no-abbrev", old, new))


def _raw(output: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields path, old blob and new blob of each regular file that was modified."""
    for line in output.splitlines():
        meta, _, path = line.partition("\t")
        if path and meta.startswith(":10"):
            _, mode, old, new, status = meta.split()
            if status == "M" and mode.startswith("10"):
                yield path, (old, new)


def picks(repository: Path, count: int, seed: int = 1) -> Iterator[Case]:
    """Yields changes of single files, each with another version of the file that it is picked onto."""
    versions: dict[str, list[tuple[str, str]]] = defaultdict(list)
    words = ["--no-merges", "--raw", "--no-abbrev", "--no-renames", "--format=", "--diff-filter=M", "HEAD"]
    for path, blobs in _raw(git(repository, "log", *words)):
        versions[path].insert(0, blobs)
    paths = [path for path, changes in versions.items() if len(changes) > 2]
    weights = [min(len(versions[path]), 60) for path in paths]
    rng = random.Random(seed)
    for _ in range(count if paths else 0):
        path = rng.choices(paths, weights)[0]
        number = rng.randrange(len(versions[path]))
        base, theirs = versions[path][number]
        if rng.random() < 0.3:
            base, theirs = theirs, base
        onto = number + rng.choice([-1, 1]) * rng.choice(_ROUGHLY)
        if 0 <= onto < len(versions[path]):
            yield Case(base, rng.choice(versions[path][onto]), theirs, path)


def compare(repository: Path, cases: Iterable[Case]) -> Report:
    """Merges each case by mudroom and by git."""
    report = Report(Counter(), [], [], 0.0)
    seen: set[tuple[str, ...]] = set()
    with tempfile.TemporaryDirectory() as place, _Blobs(repository) as blobs:
        for case in cases:
            if case[:3] in seen or len(set(case[:3])) < 3:
                continue
            seen.add(case[:3])
            sides = [blobs.read(blob) for blob in case[:3]]
            if None in sides or any(why_not_mergeable(side or b"") for side in sides):
                report.counts["left out"] += 1
                continue
            triple = sides[0] or b"", sides[1] or b"", sides[2] or b""
            began = time.perf_counter()
            kind = outcome(triple, Path(place))
            report = report._replace(seconds=report.seconds + time.perf_counter() - began)
            report.counts[kind] += 1
            if kind in ("wrong", "cautious"):
                (report.wrong if kind == "wrong" else report.cautious).append(case)
    return report


def outcome(triple: Triple, place: Path) -> str:
    """``clean`` or ``conflict`` as git has it, ``cautious`` where it is clean and we are not, ``wrong`` otherwise."""
    merged, gits = merge3(*triple), git_merge(place, triple)
    if merged.clean:
        return "clean" if merged.content() == gits else "wrong"
    return "conflict" if gits is None else "cautious"


class _Blobs:
    """Reads blobs through one ``git cat-file``."""

    def __init__(self, repository: Path) -> None:
        self._git = subprocess.Popen(
            ["git", "-C", str(repository), "cat-file", "--batch"],
            env=ENV,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> _Blobs:
        return self

    def __exit__(self, *_: object) -> None:
        self._git.communicate()

    def read(self, blob: str) -> bytes | None:
        """None if the repository does not have it."""
        assert self._git.stdin is not None and self._git.stdout is not None
        self._git.stdin.write(blob.encode() + b"\n")
        self._git.stdin.flush()
        head = self._git.stdout.readline().split()
        if head[1:] == [b"missing"]:
            return None
        data = self._git.stdout.read(int(head[2]) + 1)
        return data[:-1]


def main(repository: str, count: str = "") -> int:
    place = Path(repository)
    report = compare(place, picks(place, int(count)) if count else merges(place))
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(report.counts.items()))
    sys.stdout.write(f"{repository}: {counts}; {report.seconds:.1f} s, most of them to start git\n")
    for name in ("wrong", "cautious"):
        for case in getattr(report, name):
            sys.stdout.write(f"{name}: {' '.join(case)}\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
