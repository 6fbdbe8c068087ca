"""Merging texts, beside ``git merge-file``, which does it in a process of its own and in C."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from bench.measure import Budget, Contestant, Finding, Rival, against, at_most, command, interleave, seconds_of
from bench.place import Scale
from mudroom.core.merge.diff3 import merge3
from mudroom.stage.layers.layer import remove_tree

_ROUNDS = 5
Triple = tuple[bytes, bytes, bytes]


def merging(base: bytes, _scale: Scale) -> Iterator[Finding]:
    """Clean merges, so that both have the same to do."""
    root = base + b"/merging"
    os.mkdir(root)
    try:
        for name, triple, budget in _cases():
            yield _measure(root, name, triple, budget)
    finally:
        remove_tree(root)


def _cases() -> Iterator[tuple[str, Triple, Budget | None]]:
    lines = [b"line %d of a file that is not short\n" % number for number in range(20_000)]
    yield "a file of 60 lines, an edit on each side", _edited(lines[:60], 30, 40), at_most(0.001, "1 ms")
    yield "20,000 lines, 200 edits on each side", _edited(lines, 100, 50), at_most(1, "1 s")
    others = [b"another %d\n" % number for number in range(20_000)]
    text = b"".join(lines)
    yield "20,000 lines, every one changed", (text, text, b"".join(others)), at_most(1, "1 s")
    halves = (b"".join(others[:9_999] + lines[9_999:]), b"".join(lines[:10_001] + others[10_001:]))
    yield "20,000 lines, half of them changed by each side", (text, *halves), at_most(1, "1 s")


def _edited(lines: list[bytes], every: int, apart: int) -> Triple:
    """``every`` so many lines an edit, those of the sides ``apart`` from each other."""
    ours, theirs = list(lines), list(lines)
    for at in range(0, len(lines) - apart, every):
        ours[at] = b"ours\n"
        theirs[at + apart] = b"theirs\n"
    return b"".join(lines), b"".join(ours), b"".join(theirs)


def _measure(root: bytes, name: str, triple: Triple, budget: Budget | None) -> Finding:
    base, ours, theirs = triple
    paths = [root + b"/" + side for side in (b"ours", b"base", b"theirs")]
    for path, content in zip(paths, (ours, base, theirs), strict=True):
        with open(path, "wb") as stream:
            stream.write(content)
    git: list[str | bytes] = ["git", "merge-file", "-p", *paths]
    ways: dict[str, Callable[[], object]] = {
        "merge3": lambda: merge3(base, ours, theirs).content(),
        "git merge-file": lambda: command(git, root),
    }
    contestants = [_contestant(way, act) for way, act in ways.items()]
    contestants[1] = Rival(contestants[1], "git merge-file")
    found = interleave(contestants, _ROUNDS, warm_up=1)
    return Finding("merge", name, found["merge3"], budget, against(found, ["git merge-file"]))


def _contestant(name: str, act: Callable[[], object]) -> Contestant:
    return lambda: [(name, seconds_of(act))]
