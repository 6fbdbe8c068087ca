"""Line by line comparison: reconstruction, shortest scripts, and agreement with git and patch."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mudroom.core.text import linediff
from mudroom.core.text.linediff import Block, Counts, count_lines, diff_lines, is_binary, split_lines, unified_diff
from tiers import each, examples

# Few different lines, so that they repeat; among them those that could be taken for parts of a diff.
_LINES = [b"", b"a", b"b", b"c", b"a\r", b"\r", b"x\ry", b"\x0c", b"\xff\x00", b"\\ No newline at end of file"]
_LINES += [b"--- old", b"+++ new", b"@@ -1 +1 @@", b"-a", b"+a", b" a", b"diff --git a/f b/f"]

_ENV = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
needs_patch = pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")


def texts() -> st.SearchStrategy[bytes]:
    return st.builds(lambda lines, end: b"\n".join(lines) + end, _lists(_LINES), st.sampled_from([b"", b"\n"]))


def _lists(lines: Sequence[bytes]) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.sampled_from(lines), max_size=25)


@st.composite
def edited(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A text, and the same text after a few small edits."""
    old = draw(texts())
    lines = split_lines(old)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(lines)))
        fresh = draw(st.lists(st.sampled_from(_LINES), max_size=3))
        lines[start : start + draw(st.integers(0, 3))] = [line + b"\n" for line in fresh]
    return old, b"".join(lines)[: None if draw(st.booleans()) else -1]


def pairs() -> st.SearchStrategy[tuple[bytes, bytes]]:
    return st.one_of(edited(), st.tuples(texts(), texts()))


def check_blocks(old: Sequence[bytes], new: Sequence[bytes], blocks: Sequence[Block]) -> int:
    """Asserts all that blocks promise, and returns how many lines they add and remove."""
    i = j = changed = 0
    for n, block in enumerate(blocks):
        assert block.old_start > i or n == 0, "adjacent to the block before"
        assert old[i : block.old_start] == new[j : block.new_start]
        i, j = block.old_end, block.new_end
        size = (i - block.old_start) + (j - block.new_start)
        assert i >= block.old_start and j >= block.new_start and size > 0
        changed += size
    assert old[i:] == new[j:]
    return changed


def shortest(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """The number of lines to add and remove, by the textbook table of common subsequences."""
    row = [0] * (len(new) + 1)
    for left in old:
        diagonal = 0
        for j, right in enumerate(new, 1):
            diagonal, row[j] = row[j], diagonal + 1 if left == right else max(row[j], row[j - 1])
    return len(old) + len(new) - 2 * row[-1]


def letters(text: str) -> list[bytes]:
    return [letter.encode() + b"\n" for letter in text]


@each(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [b"\n"]),
        (b"a", [b"a"]),
        (b"a\n", [b"a\n"]),
        (b"a\n\nb", [b"a\n", b"\n", b"b"]),
        (b"a\r\nb\r\n", [b"a\r\n", b"b\r\n"]),
        (b"a\rb\x0c\x0bc\x85\n\r", [b"a\rb\x0c\x0bc\x85\n", b"\r"]),
    ],
)
def test_split_lines(data: bytes, lines: list[bytes]) -> None:
    assert split_lines(data) == lines


@given(texts())
def test_split_lines_loses_nothing(data: bytes) -> None:
    lines = split_lines(data)
    assert b"".join(lines) == data
    assert all(line.find(b"\n") in (-1, len(line) - 1) and line for line in lines)


@pytest.mark.parametrize(
    ("data", "binary"),
    [(b"", False), (b"\xff\n", False), (b"\0", True), (b"x" * 7999 + b"\0", True), (b"x" * 8000 + b"\0", False)],
)
def test_is_binary(data: bytes, binary: bool) -> None:
    assert is_binary(data) is binary


@each(
    ("old", "new", "blocks"),
    [
        ("", "", []),
        ("abc", "abc", []),
        ("", "ab", [(0, 0, 0, 2)]),
        ("ab", "", [(0, 2, 0, 0)]),
        ("abc", "axc", [(1, 2, 1, 2)]),
        ("abcd", "xbcy", [(0, 1, 0, 1), (3, 4, 3, 4)]),
        ("abc", "xyz", [(0, 3, 0, 3)]),
        ("aaaa", "aa", [(2, 4, 2, 2)]),
        ("xaby", "xababy", [(3, 3, 3, 5)]),  # the lower of two equal places
        ("xabyz", "xaybyz", [(2, 2, 2, 3)]),
        ("xaay", "xaaaz", [(3, 4, 3, 5)]),
    ],
)
def test_blocks(old: str, new: str, blocks: list[tuple[int, int, int, int]]) -> None:
    assert diff_lines(letters(old), letters(new)) == blocks


@given(pairs())
def test_blocks_reconstruct_both_sides_and_short_scripts_are_the_shortest(pair: tuple[bytes, bytes]) -> None:
    old, new = map(split_lines, pair)
    assert check_blocks(old, new, diff_lines(old, new)) == shortest(old, new)


@given(pairs())
def test_insertions_and_deletions_lie_as_low_as_they_can(pair: tuple[bytes, bytes]) -> None:
    old, new = map(split_lines, pair)
    for block in diff_lines(old, new):
        if block.old_start == block.old_end < len(old):
            assert new[block.new_start] != new[block.new_end]
        if block.new_start == block.new_end < len(new):
            assert old[block.old_start] != old[block.old_end]


@given(texts())
def test_equal_texts_have_no_blocks(data: bytes) -> None:
    assert diff_lines(split_lines(data), split_lines(data)) == []
    assert count_lines(data, data) == Counts(0, 0)
    assert list(unified_diff(data, data, old_label=b"a", new_label=b"b")) == []


@pytest.mark.parametrize(
    ("edits", "work"),
    [(1, 10**6), (2, 10**6), (5, 300), (2, 100), (1, 0)],
    ids=["one edit a bite", "two edits a bite", "work may run out", "work runs out", "no work at all"],
)
@given(old=_lists(letters("0123456789")), new=_lists(letters("0123456789")))
def test_blocks_are_right_when_the_search_is_cut_short(
    edits: int, work: int, old: list[bytes], new: list[bytes]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linediff, "_MAX_EDITS", edits)
        patch.setattr(linediff, "_MIN_EDITS", 1)
        patch.setattr(linediff, "_WORK", work)
        patch.setattr(linediff, "_WORK_PER_LINE", 0)
        assert check_blocks(old, new, diff_lines(old, new)) >= shortest(old, new)


@given(pair=edited())
def test_of_too_many_lines_a_few_edits_are_told_exactly(pair: tuple[bytes, bytes]) -> None:
    old, new = map(split_lines, pair)
    exact = count_lines(*pair)
    with _too_many() as patch:
        assert count_lines(*pair) == exact
        patch.setattr(linediff, "_LONG", 2)
        patch.setattr(linediff, "_AT_ONCE", 3)
        assert check_blocks(old, new, diff_lines(old, new)) == shortest(old, new) == sum(exact)


@given(old=_lists(letters("0123456789")), new=_lists(letters("0123456789")), few=st.integers(1, 4))
def test_of_too_many_lines_that_differ_all_over_the_answer_is_right(
    old: list[bytes], new: list[bytes], few: int
) -> None:
    with _too_many() as patch:
        patch.setattr(linediff, "_FEW_EDITS", few)
        assert check_blocks(old, new, diff_lines(old, new)) >= shortest(old, new)


@contextmanager
def _too_many() -> Iterator[pytest.MonkeyPatch]:
    """As if any text had more lines than are compared whatever they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linediff, "_WORK", 0)
        patch.setattr(linediff, "_MANY", 0)
        yield patch


@given(st.data())
def test_equal_lines_are_counted_as_one_by_one(data: st.DataObject) -> None:
    line = st.integers(0, 1)
    same = data.draw(st.lists(line, max_size=40))
    old = [2, *same, *data.draw(st.lists(line, max_size=3))]
    new = [*same, *data.draw(st.lists(line, max_size=3))]
    slow = next((n for n, (a, b) in enumerate(zip(old[1:], new, strict=False)) if a != b), min(len(old) - 1, len(new)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linediff, "_LONG", data.draw(st.sampled_from([1, 2, 7, 8, 32])))
        patch.setattr(linediff, "_AT_ONCE", data.draw(st.sampled_from([1, 9, 64])))
        assert linediff._same(old, new, 1, 0) == slow


def test_millions_of_lines_without_a_hold_are_given_up_at_once() -> None:
    """Nothing of 4 MiB on either side takes long to be counted, whatever it was written for."""
    rng, searched = random.Random(1), list[int]()
    search = linediff._search
    old, new = (rng.choices([b"\n", b"a\n", b"b\n"], k=1_000_000) for _side in range(2))

    def counted(a: list[int], b: list[int], x: int, y: int, limit: int) -> Any:
        searched.append(limit)
        return search(a, b, x, y, limit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linediff, "_search", counted)
        assert count_lines(b"".join(old), b"".join([*new[:-9], b"c\n"])).added > 900_000
    assert len(searched) == 1


def _numbered(count: int, kinds: int = 10**9) -> list[bytes]:
    return [b"%d\n" % (n % kinds) for n in range(count)]


def _shuffled(lines: Sequence[bytes]) -> list[bytes]:
    return random.Random(1).sample(lines, len(lines))


@pytest.mark.parametrize(
    ("old", "new", "most"),
    [
        pytest.param(_numbered(3000), [b"x" + line for line in _numbered(3000)], 6000, id="all changed"),
        pytest.param(_numbered(3000), _shuffled(_numbered(3000)), 5900, id="shuffled"),
        pytest.param(_numbered(3000), _numbered(3000)[::-1], 5998, id="reversed"),
        pytest.param(_numbered(3000), _numbered(3000)[999:] + _numbered(999), 1998, id="moved"),
        pytest.param([b"\n"] * 3000, [b"\n"] * 2000, 1000, id="one line repeated"),
        pytest.param([b"\n"] * 1000, [b"x\n", *[b"\n"] * 2000, b"y\n"], 1002, id="more of one line"),
        pytest.param(_numbered(3000, 2), _numbered(3001, 2)[1:], 2, id="a b a b"),
        pytest.param(_numbered(1500, 2), letters("0011") * 375, 1300, id="a b a b, a a b b"),
        pytest.param(_numbered(1500, 50), _shuffled(_numbered(1500, 50)), 2800, id="repeats, shuffled"),
        # The only unique line moves far while many others change: it must not be taken for an anchor.
        pytest.param([b"u\n", *_numbered(999, 3)], [*letters("x0") * 40, *_numbered(999, 3), b"u\n"], 82, id="decoy"),
    ],
)
def test_hard_cases_stay_right_and_reasonable(old: list[bytes], new: list[bytes], most: int) -> None:
    assert check_blocks(old, new, diff_lines(old, new)) <= most


def _source(rng: random.Random) -> list[bytes]:
    """Something like a program: blank lines, closing braces and common statements between unlike lines."""
    lines = []
    for _ in range(rng.randrange(2, 15)):
        lines += [b"", b"def f%d(x):" % rng.randrange(10**6)]
        for _ in range(rng.randrange(1, 12)):
            common = rng.choice([b"", b"    }", b"    return x", b"    if x:", b"        x += 1"])
            lines.append(common if rng.random() < 0.4 else b"    y = %d" % rng.randrange(10**6))
    return lines


def _edit(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    start = rng.randrange(len(lines))
    end = min(len(lines), start + rng.choice([1, 1, 1, 2, 3, 8, 20]))
    some, rest = lines[start:end], lines[:start] + lines[end:]
    changes: list[list[bytes]] = [
        [b"    new %d" % rng.randrange(10**6) for _ in some],
        [b"    " + line for line in some],
        _source(rng)[: len(some)] + some,
        some + some,
        [],
    ]
    kind = rng.randrange(len(changes) + 1)
    if kind < len(changes):
        return lines[:start] + changes[kind] + lines[end:] or [b"end"]
    to = rng.randrange(len(rest) + 1)
    return rest[:to] + some + rest[to:]


@needs_git
def test_counts_agree_with_git(tmp_path: Path) -> None:
    ours: dict[str, Counts] = {}
    for seed in range(400):
        rng = random.Random(seed)
        lines = _source(rng)
        sides = [b"\n".join(lines) + b"\n"]
        for _ in range(rng.choice([1, 2, 3, 5, 10])):
            lines = _edit(rng, lines)
        sides.append(b"\n".join(lines) + rng.choice([b"\n", b"\n", b""]))
        for side, data in zip("ab", sides, strict=True):
            (tmp_path / side).mkdir(exist_ok=True)
            (tmp_path / side / str(seed)).write_bytes(data)
        ours[str(seed)] = count_lines(*sides)
    command = ["git", "diff", "--no-index", "--numstat", "--no-renames", "--diff-algorithm=myers", "a", "b"]
    run = subprocess.run(command, cwd=tmp_path, env=_ENV, capture_output=True, text=True, check=False)
    gits = dict.fromkeys(ours, Counts(0, 0))
    for line in run.stdout.splitlines():
        added, removed, path = line.split("\t")
        gits[path.rpartition("/")[2].rstrip("}")] = Counts(int(added), int(removed))
    assert len(gits) == len(ours)
    assert all(sum(ours[name]) <= sum(gits[name]) * 1.25 for name in ours)
    assert sum(ours[name] == gits[name] for name in ours) >= 0.95 * len(ours)


def _diff(old: bytes, new: bytes, context: int = 3) -> bytes:
    return b"".join(unified_diff(old, new, old_label=b"f", new_label=b"f", context=context))


@each(
    ("old", "new", "diff"),
    [
        (b"", b"a\n", b"@@ -0,0 +1 @@\n+a\n"),
        (b"a\nb\n", b"", b"@@ -1,2 +0,0 @@\n-a\n-b\n"),
        (b"a\n", b"a", b"@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"),
        (b"a", b"a\r\n", b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\r\n"),
        (b"a\nb", b"c\nb", b"@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n"),
        (b"1\n2\n3\n4\n5\n", b"1\n2\n3\n4\n5\n6\n", b"@@ -3,3 +3,4 @@\n 3\n 4\n 5\n+6\n"),
    ],
)
def test_unified(old: bytes, new: bytes, diff: bytes) -> None:
    assert _diff(old, new) == b"--- f\n+++ f\n" + diff


@pytest.mark.parametrize(("between", "context", "hunks"), [(6, 3, 1), (7, 3, 2), (1, 0, 2), (2, 1, 1), (3, 1, 2)])
def test_hunks_join_where_their_context_touches(between: int, context: int, hunks: int) -> None:
    equal = _numbered(between)
    old, new = b"".join([b"a\n", *equal, b"b\n"]), b"".join([b"A\n", *equal, b"B\n"])
    assert _diff(old, new, context).count(b"@@ -") == hunks


_PATCH = ["patch", "-p0", "--binary", "--fuzz=0", "--no-backup-if-mismatch"]
_APPLY = ["git", "apply", "-p0", "--whitespace=nowarn"]
"""Never without context: of git's own ``diff -U0`` that removes an incomplete last line, ``git apply`` takes the
newline before it away as well (seen with 2.39)."""


@pytest.mark.parametrize(
    "command", [pytest.param(_PATCH, marks=needs_patch, id="patch"), pytest.param(_APPLY, marks=needs_git, id="git")]
)
@settings(
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(pair=pairs(), context=st.sampled_from([3, 3, 0, 1]))
def test_unified_applies(command: list[str], tmp_path: Path, pair: tuple[bytes, bytes], context: int) -> None:
    old, new = pair
    if command is _APPLY:
        context = max(context, 1)
    lines = list(unified_diff(old, new, old_label=b"f", new_label=b"f", context=context))
    assert all(line.endswith(b"\n") for line in lines)
    assert (lines == []) == (old == new)
    if lines:
        (tmp_path / "f").write_bytes(old)
        diff = b"".join(lines)
        subprocess.run(command, cwd=tmp_path, env=_ENV, input=diff, capture_output=True, check=True)
        assert (tmp_path / "f").read_bytes() == new
