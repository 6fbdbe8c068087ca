"""Triples of base, ours and theirs to merge, and what git makes of them."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

from mudroom.core.merge.diff3 import merge3

Triple = tuple[bytes, bytes, bytes]
Generator = Callable[[random.Random], Triple]
Change = Callable[[list[bytes]], list[bytes]]

# Nothing of the user's: neither attributes nor a configuration may have a say in it.
ENV = {
    "PATH": os.environ["PATH"],
    "HOME": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "LC_ALL": "C",
}

_COMMON = [b"", b"", b"", b"}", b"    }", b"    return x", b"    if x:", b"        x += 1", b"    else:", b"    pass"]


def git_merge(place: Path, triple: Triple) -> bytes | None:
    """Returns what git merge-file makes of the triple, or None if there is a conflict."""
    for name, data in zip(("base", "ours", "theirs"), triple, strict=True):
        (place / name).write_bytes(data)
    run = subprocess.run(
        ["git", "merge-file", "-p", "-q", "ours", "base", "theirs"],
        cwd=place,
        env=ENV,
        capture_output=True,
        check=False,
    )
    assert 0 <= run.returncode <= 127, run
    return run.stdout if run.returncode == 0 else None


def outcome(triple: Triple, place: Path) -> str:
    """``clean`` or ``conflict`` as git has it, ``cautious`` where it is clean and we are not, ``wrong`` otherwise."""
    merged, gits = merge3(*triple), git_merge(place, triple)
    if merged.clean:
        return "clean" if merged.content() == gits else "wrong"
    return "conflict" if gits is None else "cautious"


def source(rng: random.Random, size: int) -> list[bytes]:
    """Something like a program: blank lines, closing braces and common statements between unlike lines."""
    lines: list[bytes] = []
    while len(lines) < size:
        lines += [b"", b"def f%d(x):" % rng.randrange(10**6)]
        for _ in range(rng.randrange(1, 12)):
            lines.append(rng.choice(_COMMON) if rng.random() < 0.4 else b"    y = %d" % rng.randrange(10**6))
    return lines


def edited(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    """The lines after one edit of the kind that people make."""
    start = rng.randrange(len(lines) + 1)
    end = min(len(lines), start + rng.choice([0, 1, 1, 1, 2, 3, 8, 20]))
    some, rest = lines[start:end], lines[:start] + lines[end:]
    changes: list[list[bytes]] = [
        [b"    new %d" % rng.randrange(10**6) for _ in some],
        [b"    " + line for line in some],
        source(rng, 1)[: 1 + len(some)] + some,
        source(rng, len(some) + 1),
        [line if rng.random() < 0.5 else b"    other %d" % rng.randrange(10**6) for line in some],
        some + some,
        [],
        [],
    ]
    kind = rng.randrange(len(changes) + 1)
    if kind < len(changes):
        return lines[:start] + changes[kind] + lines[end:]
    to = rng.randrange(len(rest) + 1)
    return rest[:to] + some + rest[to:]


def several(rng: random.Random, lines: list[bytes], count: int) -> list[bytes]:
    for _ in range(count):
        lines = edited(rng, lines)
    return lines


def joined(lines: list[bytes], newline: bytes = b"\n") -> bytes:
    return b"".join(line + newline for line in lines)


def tiny(rng: random.Random) -> Triple:
    """Few different lines, many ways to align them."""
    letters = [b"a", b"b", b"c", b"d"][: rng.randint(1, 4)]

    def change(lines: list[bytes]) -> list[bytes]:
        if rng.random() < 0.2:
            return [rng.choice(letters) for _ in range(rng.randint(0, 8))]
        for _ in range(rng.randint(0, 3)):
            at = rng.randint(0, len(lines))
            fresh = [rng.choice([*letters, b"x", b"y"]) for _ in range(rng.choice([0, 0, 1, 1, 2]))]
            lines = lines[:at] + fresh + lines[at + rng.choice([0, 0, 1, 1, 2]) :]
        return lines

    base = [rng.choice(letters) for _ in range(rng.randint(0, 10))]
    return joined(base), joined(change(base)), joined(change(base))


def marked(rng: random.Random) -> Triple:
    """Unlike lines with repeated ones between them."""
    base: list[bytes] = []
    for n in range(rng.randint(1, 8)):
        base += [b"line %d" % n, *[rng.choice([b"", b"}", b"x"]) for _ in range(rng.randint(0, 3))]]
    return joined(base), joined(_small(rng, base)), joined(_small(rng, base))


def _small(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(lines))
        fresh = [rng.choice([b"", b"}", b"x", b"new %d" % rng.randrange(9)]) for _ in range(rng.choice([0, 1, 2, 4]))]
        lines = lines[:at] + fresh + lines[at + rng.choice([0, 0, 1, 2]) :]
    return lines


def code(rng: random.Random) -> Triple:
    base = source(rng, rng.choice([10, 30, 60, 120]))
    ours, theirs = (several(rng, base, rng.choice([1, 1, 2, 4])) for _ in "ab")
    return joined(base), joined(ours), joined(theirs)


def slides(rng: random.Random) -> Triple:
    """Blocks that are inserted beside or taken from equal ones."""
    block = source(rng, rng.randint(1, 6))[: rng.randint(1, 8)]
    base = source(rng, 6) + block * rng.randint(1, 4) + source(rng, 6)

    def change() -> list[bytes]:
        lines = list(base)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(6, len(lines) - 5)
            size = rng.choice([len(block), 1, 2])
            if rng.random() < 0.5:
                lines[at:at] = lines[at - size : at] if rng.random() < 0.7 else block
            else:
                del lines[at : at + size]
        return lines if rng.random() < 0.7 else edited(rng, lines)

    return joined(base), joined(change()), joined(change())


def shared(rng: random.Random) -> Triple:
    """Both sides have some changes in common: one was picked from the other."""
    base = source(rng, rng.choice([10, 40, 100]))
    middle = several(rng, base, rng.randint(1, 3))
    ours, theirs = (several(rng, middle, rng.randint(0, 2)) for _ in "ab")
    return joined(base), joined(ours), joined(theirs)


def picked(rng: random.Random) -> Triple:
    """The same additions on both sides, each with changes of its own far off."""
    base = [b"%d" % n if n % 4 else rng.choice([b"", b"}"]) for n in range(60)]
    fresh = [(rng.randrange(20, 40), source(rng, rng.randint(1, 12))) for _ in range(2)]

    def change() -> list[bytes]:
        lines = list(base)
        for at, some in sorted(fresh, key=lambda pair: -pair[0]):
            lines[at:at] = some
        for _ in range(rng.randint(0, 4)):
            at = rng.choice([rng.randrange(0, 18), len(lines) - rng.randrange(1, 18)])
            lines[at : at + rng.randint(0, 2)] = [rng.choice(base) for _ in range(rng.randint(0, 3))]
        return lines

    return joined(base), joined(change()), joined(change())


def moves(rng: random.Random) -> Triple:
    """Blocks that went elsewhere."""
    base = source(rng, rng.choice([30, 80]))

    def change() -> list[bytes]:
        lines = list(base)
        for _ in range(rng.randint(1, 2)):
            start, size = rng.randrange(len(lines)), rng.choice([2, 5, 10, 20])
            some = lines[start : start + size]
            del lines[start : start + size]
            to = rng.randrange(len(lines) + 1)
            lines[to:to] = some
        return edited(rng, lines)

    return joined(base), joined(change()), joined(change())


def endings(rng: random.Random) -> Triple:
    """CRLF, both kinds of lines in one file, last lines without a newline."""
    base = source(rng, rng.choice([3, 10, 25]))
    newline = rng.choice([b"\n", b"\r\n"])
    sides = [joined(lines, newline) for lines in (base, several(rng, base, rng.randint(0, 2)), edited(rng, base))]
    if rng.random() < 0.3:
        sides[rng.randrange(3)] = joined(edited(rng, base), b"\r\n")
    sides = [side.removesuffix(newline) if rng.random() < 0.4 else side for side in sides]
    return sides[0], sides[1], sides[2]


def large(rng: random.Random) -> Triple:
    base = source(rng, rng.choice([300, 1000, 2000]))
    ours, theirs = several(rng, base, rng.choice([3, 10, 40])), several(rng, base, rng.choice([3, 10]))
    return joined(base), joined(ours), joined(theirs)


def rewritten(rng: random.Random) -> Triple:
    """Hundreds of lines replaced, among them many that occur elsewhere, too."""
    base = source(rng, rng.choice([200, 600]))
    start, size = rng.randrange(len(base)), rng.choice([50, 150])
    ours = base[:start] + source(rng, size) + base[start + size :]
    ours = several(rng, ours, rng.randint(0, 3))
    return joined(base), joined(ours), joined(several(rng, base, rng.choice([1, 3, 10])))


def hopeless(rng: random.Random) -> Triple:
    """More edits than anybody looks for exactly: git falls back on guesses here."""
    base = source(rng, rng.choice([1500, 3000]))
    ours = list(base)
    for _ in range(rng.choice([1, 2, 4, 10])):
        start, size = rng.randrange(len(ours)), rng.choice([200, 400, 900])
        some = ours[start : start + size]
        del ours[start : start + size]
        to = rng.randrange(len(ours) + 1)
        ours[to:to] = some
    if rng.random() < 0.5:
        ours = [line for line in ours if rng.random() > 0.1]
    return joined(base), joined(ours), joined(several(rng, base, rng.choice([1, 3, 10, 30])))


GENERATORS: dict[str, tuple[Generator, int]] = {
    "tiny": (tiny, 30),
    "marked": (marked, 20),
    "code": (code, 20),
    "slides": (slides, 15),
    "shared": (shared, 10),
    "picked": (picked, 10),
    "moves": (moves, 5),
    "endings": (endings, 10),
    "large": (large, 2),
    "rewritten": (rewritten, 4),
    "hopeless": (hopeless, 1),
}
"""Each with how often it is chosen."""


def triple(seed: int) -> tuple[str, Triple]:
    """The triple of that number, and the name of its kind."""
    rng = random.Random(seed)
    names = list(GENERATORS)
    name = rng.choices(names, [weight for _, weight in GENERATORS.values()])[0]
    generator, _ = GENERATORS[name]
    return name, generator(rng)
