"""How alike two contents are: what git says of them, and what holds of any two."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.similar_renames import FULL, can_be_similar, percent, score, spans
from tiers import each

CONTENTS = st.binary(max_size=400) | st.lists(st.sampled_from([b"a\n", b"bb\r\n", b"x" * 70 + b"\n", b"\0"])).map(
    b"".join
)


def alike(old: bytes, new: bytes) -> int:
    return percent(score(spans(old), spans(new)))


@each(
    ("what", "old", "new", "expected"),
    [
        ("the same", b"a\nb\n", b"a\nb\n", 100),
        ("nothing in common", b"a\nb\n", b"c\nd\n", 0),
        ("half of it", b"a\nb\n", b"a\nc\n", 50),
        ("rounded down", b"a\nb\nc\n", b"a\nb\nd\n", 66),
        ("lines that have changed places", b"a\nb\n", b"b\na\n", 100),
        ("more of the same", b"a\n", b"a\na\n", 50),
        ("less of the same", b"a\na\n", b"a\n", 50),
        ("a long line is several spans", b"x" * 64 + b"y\n", b"x" * 64 + b"z\n", 96),
        ("of a short line all counts", b"x" * 60 + b"y\n", b"x" * 60 + b"z\n", 0),
        ("what is behind the last newline", b"ab", b"ab", 100),
        ("carriage returns count for nothing", b"ab\r\ncd\r\n", b"ab\ncd\n", 75),
        ("but in what is no text", b"\0\nab\r\n", b"\0\nab\n", 33),
        ("empty", b"", b"", 0),
        ("was empty", b"", b"a\n", 0),
    ],
)
def test_scores(what: str, old: bytes, new: bytes, expected: int) -> None:
    assert alike(old, new) == expected, what


@given(CONTENTS, CONTENTS)
def test_what_holds_of_any_two(one: bytes, other: bytes) -> None:
    a, b = spans(one), spans(other)
    assert 0 <= score(a, b) == score(b, a) <= FULL
    assert score(a, b) <= FULL * min(len(one), len(other)) // max(len(one), len(other), 1)
    text = b"\r" not in one and bool(one)
    assert not text or score(a, a) == FULL


@given(st.integers(0, 1 << 21), st.integers(0, 1 << 21))
def test_sizes_that_are_too_far_apart_are_not_looked_at(old: int, new: int) -> None:
    """Whether it can be half: no content of these sizes could be more alike than the smaller is of the larger."""
    assert can_be_similar(old, new) == (0 < max(old, new) <= 2 * min(old, new))


def edited(chance: random.Random, text: list[bytes]) -> bytes:
    rate = chance.choice([0.0, 0.05, 0.2, 0.4])
    lines = [line if chance.random() > rate else b"%d\n" % chance.randrange(10**6) for line in text]
    for _ in range(chance.randrange(4)):
        lines.insert(chance.randrange(len(lines) + 1), b"new %d\n" % chance.randrange(100))
    if chance.random() < 0.2:
        chance.shuffle(lines)
    return b"".join(lines)


def content(chance: random.Random) -> list[bytes]:
    """Lines of many lengths, some of them often; some with a byte that makes it binary."""
    pool = [bytes(chance.choices(b"abcdef   =()", k=chance.choice([0, 5, 20, 40, 63, 64, 90, 300]))) for _ in range(30)]
    lines = [
        chance.choice(pool) + chance.choice([b"\n", b"\n", b"\n", b"\r\n"]) for _ in range(chance.randrange(3, 60))
    ]
    return [b"\0\n", *lines] if chance.random() < 0.2 else lines


def test_git_says_the_same_within_a_point(tmp_path: Path) -> None:
    chance = random.Random(16)
    pairs = []
    for _ in range(400):
        lines = content(chance)
        old, new = b"".join(lines), edited(chance, lines)
        pairs += [(old, new)] if old != new else []
    said = git_scores(tmp_path, pairs)
    assert sum(one is not None for one in said) > 200
    for (old, new), one in zip(pairs, said, strict=True):
        mine = alike(old, new)
        assert mine <= 51 if one is None else abs(mine - one) <= 1, (old, new, mine, one)


def git_scores(place: Path, pairs: list[tuple[bytes, bytes]]) -> list[int | None]:
    """``git diff-tree -M --raw``, of each pair in two trees of their own. None: git does not pair them."""

    def git(*words: str, lines: str = "") -> list[str]:
        done = subprocess.run(["git", *words], cwd=place, check=True, capture_output=True, text=True, input=lines)
        return done.stdout.splitlines()

    names = []
    for number, pair in enumerate(pairs):
        for side, data in zip(("old", "new"), pair, strict=True):
            names.append(f"{side}-{number}")
            (place / names[-1]).write_bytes(data)
    git("init", "-q")
    blobs = git("hash-object", "-w", "--no-filters", "--stdin-paths", lines="\n".join(names))
    listed = (f"100644 blob {blob}\t{name}\n" for name, blob in zip(names, blobs, strict=True))
    trees = git("mktree", "--batch", lines="\n".join(listed))
    asked = (f"{old} {new}\n" for old, new in zip(trees[::2], trees[1::2], strict=True))
    said = git("diff-tree", "-r", "-M", "--stdin", lines="".join(asked))
    scores: list[int | None] = []
    for line in said:
        if not line.startswith(":"):
            scores.append(None)
        elif (status := line.split()[4]).startswith("R"):
            scores[-1] = int(status[1:])
    return scores
