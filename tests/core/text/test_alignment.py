"""What belongs together beyond doubt: against every alignment there is, and against the one that git chooses."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import triples
from mudroom.core.text import alignment
from mudroom.core.text.alignment import Matches, align, every_alignment, gaps, settle
from mudroom.core.text.linediff import Block, split_lines
from tiers import each

TRIPLES = int(os.environ.get("MUDROOM_TRIPLES", "300"))


def texts() -> st.SearchStrategy[str]:
    return st.text("abc", max_size=8)


@cache
def shared(old: str, new: str) -> int:
    """The length of the longest common subsequence, by its definition."""
    if not old or not new:
        return 0
    if old[0] == new[0]:
        return 1 + shared(old[1:], new[1:])
    return max(shared(old[1:], new), shared(old, new[1:]))


def all_alignments(old: str, new: str) -> set[Matches]:
    """Every alignment with as many matches as possible, by trying all that may come first."""
    if not shared(old, new):
        return {()}
    found: set[Matches] = set()
    for x, y in product(range(len(old)), range(len(new))):
        if old[x] == new[y] and 1 + shared(old[x + 1 :], new[y + 1 :]) == shared(old, new):
            rests = all_alignments(old[x + 1 :], new[y + 1 :])
            found |= {((x, y), *((i + x + 1, j + y + 1) for i, j in rest)) for rest in rests}
    return found


def common(ways: set[Matches]) -> set[tuple[int, int]]:
    return set[tuple[int, int]].intersection(*map(set, ways))


def numbers(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def sure(old: str, new: str) -> set[tuple[int, int]]:
    return {(x, y) for x, y in enumerate(align(numbers(old), numbers(new)).partners) if y >= 0}


@given(texts(), texts())
def test_the_search_finds_what_all_shortest_scripts_match(old: str, new: str) -> None:
    matches = alignment._sure_matches(numbers(old), numbers(new))
    assert matches is not None and set(matches) == common(all_alignments(old, new))


def test_the_search_finds_it_for_all_short_texts() -> None:
    words = ["".join(word) for length in range(5) for word in product("ab", repeat=length)]
    for old, new in product(words, words):
        matches = alignment._sure_matches(numbers(old), numbers(new))
        assert matches is not None and set(matches) == common(all_alignments(old, new)), (old, new)


@given(texts(), texts())
def test_every_alignment_is_found_once(old: str, new: str) -> None:
    found = every_alignment(numbers(old), numbers(new), most=10**6)
    assert found is not None and len(found) == len(set(found))
    assert set(found) == all_alignments(old, new)


@given(texts(), texts(), st.integers(0, 5))
def test_no_more_alignments_are_looked_for_than_wanted(old: str, new: str, most: int) -> None:
    found = every_alignment(numbers(old), numbers(new), most)
    ways = all_alignments(old, new)
    assert found is None if len(ways) > most else set(found or ()) == ways


@given(texts(), texts())
def test_at_rest_an_alignment_is_still_the_best(old: str, new: str) -> None:
    ways = all_alignments(old, new)
    assert {settle(numbers(old), numbers(new), way) for way in ways} <= ways


@each(
    ("old", "new", "matches", "rest"),
    [
        ("xby", "xbaby", {(0, 0), (1, 3), (2, 4)}, {(0, 0), (1, 1), (2, 4)}),  # down
        ("xbaby", "xby", {(0, 0), (3, 1), (4, 2)}, {(0, 0), (1, 1), (4, 2)}),
        ("aab", "ab", {(1, 0), (2, 1)}, {(0, 0), (2, 1)}),
        ("xab", "aab", {(1, 0), (2, 2)}, {(1, 1), (2, 2)}),  # beside the x rather than low
        ("axb", "aab", {(0, 1), (2, 2)}, {(0, 0), (2, 2)}),
        ("pab", "aqab", {(1, 0), (2, 3)}, {(1, 2), (2, 3)}),  # up to the p
    ],
)
def test_where_blocks_come_to_rest(
    old: str, new: str, matches: set[tuple[int, int]], rest: set[tuple[int, int]]
) -> None:
    assert set(settle(numbers(old), numbers(new), tuple(sorted(matches)))) == rest


@each(
    ("old", "new", "pairs", "doubtful"),
    [
        ("", "", set(), set()),
        ("abc", "abc", {(0, 0), (1, 1), (2, 2)}, set()),
        ("abc", "", set(), set()),
        ("abc", "axc", {(0, 0), (2, 2)}, set()),
        ("xby", "xbaby", {(0, 0), (1, 1), (2, 4)}, set()),  # it slides, and rests at one place
        ("xaby", "xbay", {(0, 0), (3, 3)}, set()),  # either a or b stays, but where each belongs is known
        ("xpaqy", "xPaQaRy", {(0, 0), (4, 6)}, {2}),  # it may belong to the first a or to the second
    ],
)
def test_what_is_sure_and_what_is_doubtful(old: str, new: str, pairs: set[tuple[int, int]], doubtful: set[int]) -> None:
    assert sure(old, new) == pairs
    assert align(numbers(old), numbers(new)).doubtful == doubtful


@given(texts(), texts())
def test_an_alignment_keeps_the_order_and_matches_what_is_equal(old: str, new: str) -> None:
    pairs = sorted(sure(old, new))
    assert all(old[x] == new[y] for x, y in pairs)
    assert [y for _, y in pairs] == sorted({y for _, y in pairs})


@given(texts())
def test_equal_texts_are_sure_throughout(text: str) -> None:
    assert sure(text, text) == {(n, n) for n in range(len(text))}


@given(texts(), texts())
def test_gaps_are_all_that_is_not_sure(old: str, new: str) -> None:
    partners = align(numbers(old), numbers(new)).partners
    found = list(gaps(partners, len(new)))
    assert [n for gap in found for n in range(gap.old_start, gap.old_end)] == [
        n for n, y in enumerate(partners) if y < 0
    ]
    assert {n for gap in found for n in range(gap.new_start, gap.new_end)} == {*range(len(new))} - {*partners}


def test_with_too_many_edits_only_the_ends_are_sure() -> None:
    old, new = list(range(2000)), [*range(500), *range(1000, 1400), *range(500, 1000), *range(1400, 2000)]
    partners = align(old, new).partners
    assert partners == [*range(500), *[-1] * 900, *range(1400, 2000)]


def test_a_long_insertion_is_not_too_many_edits() -> None:
    old = list(range(100))
    assert align(old, [*range(50), *[7, 8] * 1000, *range(50, 100)]).partners == [*range(50), *range(2050, 2100)]
    assert align([*range(50), *[7, 8] * 1000, *range(50, 100)], old).partners[:50] == [*range(50)]


def test_a_frequent_line_among_new_ones_is_none_of_the_old() -> None:
    blank, old = 10**6, list(range(100))
    for n in range(20):
        old.insert(5 * n, blank)
    new = [*old[:50], *range(200, 210), blank, *range(210, 220), *old[51:]]  # in place of a blank line
    assert old[50] == blank
    assert align(old, new).partners[49:52] == [49, -1, 71]


@pytest.mark.parametrize(("table", "ways", "work"), [(0, 200, 10**6), (10**4, 1, 10**6), (10**4, 200, 0)])
@given(old=texts(), new=texts())
def test_what_is_not_looked_at_in_full_is_not_sure(table: int, ways: int, work: int, old: str, new: str) -> None:
    full = align(numbers(old), numbers(new))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_TABLE", table)
        patch.setattr(alignment, "_WAYS", ways)
        patch.setattr(alignment, "_WORK", work)
        less = align(numbers(old), numbers(new))
    assert all(y in (-1, z) for y, z in zip(less.partners, full.partners, strict=True))
    assert full.doubtful <= less.doubtful


def git_blocks(place: Path, pairs: Sequence[tuple[bytes, bytes]]) -> list[list[Block]]:
    """The changed lines of each pair as git finds them."""
    for side in (0, 1):
        (place / "ab"[side]).mkdir(exist_ok=True)
        for number, pair in enumerate(pairs):
            (place / "ab"[side] / f"{number:06}").write_bytes(pair[side])
    # Not without context: git would look at less than the whole files.
    words = "git diff --no-index -U1 --text --no-renames --no-prefix --no-indent-heuristic --diff-algorithm=myers a b"
    run = subprocess.run(words.split(), cwd=place, env=triples.ENV, capture_output=True, check=False)
    found: list[list[Block]] = [[] for _ in pairs]
    x = y = x_end = y_end = 0
    number = -1
    for line in run.stdout.split(b"\n"):
        if x < x_end or y < y_end:
            # Each changed line as a block of its own.
            if line[:1] in (b"-", b"+"):
                found[number].append(Block(x, x + (line[:1] == b"-"), y, y + (line[:1] == b"+")))
            x += line[:1] in (b"-", b" ")
            y += line[:1] in (b"+", b" ")
        elif line.startswith(b"diff --git "):
            number = int(line[-6:])
        elif line.startswith(b"@@ "):
            (x, x_end), (y, y_end) = (_range(part) for part in line.split()[1:3])
    return found


def _range(part: bytes) -> tuple[int, int]:
    start, _, count = part[1:].partition(b",")
    begin = int(start) - (count != b"0")
    return begin, begin + int(count or 1)


def git_partners(length: int, blocks: list[Block]) -> list[int]:
    partners = []
    offset = x = 0
    for block in [*blocks, Block(length, length, 0, 0)]:
        partners += [n + offset for n in range(x, block.old_start)]
        partners += [-1] * (block.old_end - block.old_start)
        x, offset = block.old_end, block.new_end - block.old_end
    return partners


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_line_that_was_set_aside_may_yet_be_matched(tmp_path: Path) -> None:
    """Where blank lines are just too many among new ones to be set aside, the next one may be set aside.

    Of the new blank lines, only "kept" and the very last are not, so that these two match the two old ones. But then
    the block between them slides down, since it begins with a blank line.
    """
    old, blank = [line for n in range(40) for line in (n, -1)], -1
    fresh = iter(range(1000, 2000))

    def some(count: int) -> list[int]:
        return [next(fresh) for _ in range(count)]

    kept = 1 + 100 + 1 + 99
    crowd = [line for _ in range(47) for line in (blank, *some(1))]
    new = [500, *some(100), blank, *some(99), blank, blank, *some(2), *crowd, *some(210), blank, 501]
    old, new = [*old, 500, blank, blank, 501], [*old, *new]
    assert new[80 + kept : 80 + kept + 2] == [blank, blank]
    partners = align(old, new).partners
    assert partners[80:] == [80, 80 + kept, 80 + kept + 1, len(new) - 1]
    texts = [triples.joined([b"%d" % line if line >= 0 else b"" for line in side]) for side in (old, new)]
    assert git_partners(len(old), git_blocks(tmp_path, [(texts[0], texts[1])])[0]) == partners
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_widen", lambda *_: None)
        assert align(old, new).partners[82] == len(new) - 2


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_agrees_with_all_that_is_sure(tmp_path: Path) -> None:
    for first in range(0, TRIPLES, 200):
        named = [triples.triple(seed) for seed in range(first, min(TRIPLES, first + 200))]
        pairs = [(sides[0], side) for _, sides in named for side in sides[1:]]
        for (base, side), blocks in zip(pairs, git_blocks(tmp_path, pairs), strict=True):
            ids: dict[bytes, int] = {}
            old, new = ([ids.setdefault(line, len(ids)) for line in split_lines(text)] for text in (base, side))
            gits = git_partners(len(old), blocks)
            assert all(y in (-1, z) for y, z in zip(align(old, new).partners, gits, strict=True)), (base, side)
        shutil.rmtree(tmp_path / "a")
        shutil.rmtree(tmp_path / "b")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_chooses_one_of_the_alignments_at_rest(tmp_path: Path) -> None:
    rng = random.Random(5)
    words = [
        ("".join(rng.choices("abcx", k=rng.randint(0, 7))), "".join(rng.choices("abcy", k=rng.randint(0, 7))))
        for _ in range(TRIPLES)
    ]
    pairs = [(triples.joined([*map(str.encode, old)]), triples.joined([*map(str.encode, new)])) for old, new in words]
    other = 0
    for (old, new), blocks in zip(words, git_blocks(tmp_path, pairs), strict=True):
        ways = all_alignments(old, new)
        gits = tuple((x, y) for x, y in enumerate(git_partners(len(old), blocks)) if y >= 0)
        other += gits not in ways  # a frequent line was set aside
        assert gits not in ways or gits in {alignment.settle(numbers(old), numbers(new), way) for way in ways}
    assert other < TRIPLES / 100
