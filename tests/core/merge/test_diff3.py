"""Merging three texts: tables, and what holds for all texts."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import triples
from mudroom.core.merge.diff3 import Chunk, MergedText, merge3
from mudroom.core.text.linediff import split_lines
from tiers import each

KINDS = {"=": "same", "o": "ours", "t": "theirs", "b": "both", "!": "conflict"}


def text(letters: str) -> bytes:
    return b"".join(letter.encode() + b"\n" for letter in letters)


@each(
    ("base", "ours", "theirs", "kinds", "result"),
    [
        ("", "", "", "", ""),
        ("abc", "abc", "abc", "=", "abc"),
        ("abc", "xbc", "abc", "o=", "xbc"),
        ("abc", "abc", "abx", "=t", "abx"),
        ("abc", "xbc", "aby", "o=t", "xby"),
        ("abc", "xbc", "xbc", "b=", "xbc"),
        ("abc", "xbc", "ybc", "!=", None),
        ("abc", "xc", "abcy", "o=t", "xcy"),
        ("abcd", "axcd", "abyd", "=!=", None),  # neighbours: no unchanged line between them
        ("abcd", "xbcd", "abcy", "o=t", "xbcy"),
        ("abc", "ac", "abc", "=o=", "ac"),
        ("abc", "ac", "ac", "=b=", "ac"),
        ("abc", "ac", "axc", "=!=", None),  # deleted here, changed there
        ("abc", "", "abc", "o", ""),
        ("abc", "", "", "b", ""),
        ("", "a", "", "o", "a"),
        ("", "a", "a", "b", "a"),
        ("", "a", "b", "!", None),
        ("ab", "axb", "ab", "=o=", "axb"),
        ("ab", "axb", "axb", "=b=", "axb"),
        ("ab", "axb", "ayb", "=!=", None),
        ("ab", "xab", "aby", "o=t", "xaby"),
        ("abc", "axbc", "abyc", "=o=t=", "axbyc"),
        # A block that could lie at several places has come to rest at one, so that the line beside it is free.
        ("xby", "xbaby", "pby", "t=o=", "pbaby"),
        ("xbbby", "xbby", "pbbby", "t=o=", "pbby"),
        ("xaay", "xay", "xaaay", "=!=", None),  # one less, one more
        ("xaay", "xay", "xay", "=b=", "xay"),
        # Which a is the old one? Git may take the first for ours and the second for theirs.
        ("xpaqyz", "xPaQaRyz", "xPaQaRyZ", "=!=t", None),
        ("xpaqyz", "xPaQaRyz", "xPaQaRyz", "=b=", "xPaQaRyz"),
        ("xpaqyz", "xPaQaRyz", "xpaqyZ", "=o=t", "xPaQaRyZ"),
    ],
)
def test_merge(base: str, ours: str, theirs: str, kinds: str, result: str | None) -> None:
    merged = merge3(text(base), text(ours), text(theirs))
    assert [chunk.kind for chunk in merged.chunks] == [KINDS[kind] for kind in kinds]
    assert merged.conflicts == kinds.count("!")
    assert merged.clean == (result is not None)
    if result is not None:
        assert merged.content() == text(result)


@each(
    ("base", "ours", "theirs", "result"),
    [
        (b"a\r\nb\r\nc\r\n", b"A\r\nb\r\nc\r\n", b"a\r\nb\r\nC\r\n", b"A\r\nb\r\nC\r\n"),
        (b"a\r\nb\r\nc\r\n", b"a\nb\nc\n", b"a\r\nb\r\nc\r\n", b"a\nb\nc\n"),
        (b"a\r\nb\r\nc\r\n", b"a\nb\nc\n", b"a\r\nb\r\nC\r\n", None),  # all lines are other lines
        (b"a\nb\nc", b"A\nb\nc", b"a\nb\nC", b"A\nb\nC"),
        (b"a\nb\nc", b"A\nb\nc", b"a\nb\nc\n", b"A\nb\nc\n"),
        (b"a\nb\nc", b"a\nb\nc\n", b"a\nb\nc\nd", None),
        (b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nc", b"A\nb\nc"),
        (b"a", b"a\n", b"a\n", b"a\n"),
        (b"a\0\n\xff\nb\n", b"A\0\n\xff\nb\n", b"a\0\n\xff\nB\n", b"A\0\n\xff\nB\n"),  # it knows bytes
        (b"a\rb\n\x0c\nc\n", b"a\rB\n\x0c\nc\n", b"a\rb\n\x0c\nC\n", b"a\rB\n\x0c\nC\n"),
    ],
)
def test_ends_of_lines_belong_to_them(base: bytes, ours: bytes, theirs: bytes, result: bytes | None) -> None:
    merged = merge3(base, ours, theirs)
    assert (merged.content() if merged.clean else None) == result


def test_a_conflict_holds_all_three_sides() -> None:
    merged = merge3(text("abcd"), text("axcd"), text("aycd"))
    assert merged.chunks == (
        Chunk("same", (b"a\n",), (b"a\n",), (b"a\n",)),
        Chunk("conflict", (b"b\n",), (b"x\n",), (b"y\n",)),
        Chunk("same", (b"c\n", b"d\n"), (b"c\n", b"d\n"), (b"c\n", b"d\n")),
    )
    with pytest.raises(ValueError, match="1"):
        merged.content()


def texts() -> st.SearchStrategy[bytes]:
    lines = st.lists(st.sampled_from([b"", b"a", b"b", b"c", b"a\r", b"}"]), max_size=12)
    return st.builds(lambda lines, end: b"\n".join(lines) + end, lines, st.sampled_from([b"", b"\n"]))


@st.composite
def related(draw: st.DrawFn) -> triples.Triple:
    """Three texts, most of them with something in common."""
    if draw(st.booleans()):
        return triples.triple(draw(st.integers(0, 10**9)))[1]
    return draw(texts()), draw(texts()), draw(texts())


@given(texts(), texts())
def test_what_one_side_alone_has_changed_is_taken(base: bytes, other: bytes) -> None:
    assert merge3(base, other, base).content() == other
    assert merge3(base, base, other).content() == other
    assert merge3(base, other, other).content() == other


@given(related())
def test_the_sides_of_the_chunks_are_the_sides(triple: triples.Triple) -> None:
    merged = merge3(*triple)
    for side, data in zip((1, 2, 3), triple, strict=True):
        lines = [line for chunk in merged.chunks for line in chunk[side]]
        assert lines == split_lines(data)


@given(related())
def test_chunks_are_what_they_are_called(triple: triples.Triple) -> None:
    merged = merge3(*triple)
    for chunk in merged.chunks:
        match chunk.kind:
            case "same":
                assert chunk.base == chunk.ours == chunk.theirs != ()
            case "ours":
                assert chunk.base == chunk.theirs != chunk.ours
            case "theirs":
                assert chunk.base == chunk.ours != chunk.theirs
            case "both":
                assert chunk.base != chunk.ours == chunk.theirs
            case "conflict":
                assert chunk.base not in (chunk.ours, chunk.theirs)
    changed = [chunk.kind != "same" for chunk in merged.chunks]
    assert all(one != next_one for one, next_one in pairwise(changed)), "by turns"


@given(related())
def test_the_sides_can_change_places(triple: triples.Triple) -> None:
    base, ours, theirs = triple
    other = {"ours": "theirs", "theirs": "ours"}
    turned = [Chunk(other.get(kind, kind), b, o, t) for kind, b, t, o in merge3(base, theirs, ours).chunks]  # type: ignore[arg-type]
    assert MergedText(tuple(turned)) == merge3(base, ours, theirs)


@given(related())
def test_nothing_is_made_up_and_nothing_is_lost(triple: triples.Triple) -> None:
    base, ours, theirs = map(split_lines, triple)
    merged = merge3(*triple)
    if merged.clean:
        result = split_lines(merged.content())
        assert {*result} <= {*ours, *theirs}
        assert ({*ours} - {*base}) | ({*theirs} - {*base}) <= {*result}, "what is new on one side stays"


def test_changes_far_apart_never_conflict() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        base = [b"%d" % n for n in range(300)]
        ours, theirs = list(base), list(base)
        for at in range(0, 300, 10):
            side = rng.choice([ours, theirs])
            place = side.index(b"%d" % (at + rng.randrange(8)))
            side[place : place + rng.randint(0, 1)] = triples.source(rng, 1)[: rng.randint(0, 3)]
        assert merge3(*map(triples.joined, (base, ours, theirs))).clean


def _sprinkled(rng: random.Random, lines: list[bytes], count: int, offset: int) -> list[bytes]:
    lines = list(lines)
    step = len(lines) // count
    for n in range(count - 1, -1, -1):
        lines[n * step + offset : n * step + offset + rng.randint(0, 2)] = [b"new %d" % rng.randrange(10**9)]
    return lines


@pytest.mark.parametrize(("length", "edits"), [(20_000, 200), (100_000, 5)])
def test_large_files_are_merged_whole(length: int, edits: int) -> None:
    rng = random.Random(1)
    base = triples.source(rng, length)
    ours, theirs = _sprinkled(rng, base, edits, 10), _sprinkled(rng, base, edits, 50)
    merged = merge3(*map(triples.joined, (base, ours, theirs)))
    assert merged.clean
    assert len(merged.chunks) == 4 * edits + 1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda lines: [b"x" + line for line in lines], lambda lines: lines[:-1]),
        (lambda lines: lines[::-1], lambda lines: lines[:-1]),
        (lambda lines: random.Random(1).sample(lines, len(lines)), lambda lines: [b"x", *lines]),
        (lambda lines: [b"a", b"b"] * 10_000, lambda lines: [b"a"] * 20_000),
    ],
    ids=["all changed", "reversed", "shuffled", "repeated"],
)
def test_hopeless_files_conflict_as_a_whole_and_soon(ours: triples.Change, theirs: triples.Change) -> None:
    base = triples.source(random.Random(2), 20_000)
    assert merge3(*map(triples.joined, (base, ours(base), theirs(base)))).conflicts == 1
