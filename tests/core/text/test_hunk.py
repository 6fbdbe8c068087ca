"""Hunks to choose among: whatever is chosen, nothing is lost and nothing comes twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.merge.diff3 import merge3
from mudroom.core.text.hunk import hunks, select_blocks, split_hunk
from mudroom.core.text.linediff import unified_diff

BASE = b"".join(b"%d\n" % number for number in range(1, 31))


def changed(**lines: str) -> bytes:
    found = BASE.decode()
    for number, text in lines.items():
        found = found.replace(f"\n{number[1:]}\n", f"\n{text}\n")
    return found.encode()


def texts() -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), max_size=12).map(b"".join)


@given(texts(), texts())
def test_all_is_theirs_and_none_is_the_base(base: bytes, theirs: bytes) -> None:
    blocks = [number for hunk in hunks(base, theirs) for number in hunk.blocks]
    assert blocks == list(range(len(blocks)))
    assert select_blocks(base, theirs, blocks) == theirs
    assert select_blocks(base, theirs, ()) == base


@given(texts(), texts(), st.data())
def test_a_part_and_then_the_rest(base: bytes, theirs: bytes, data: st.DataObject) -> None:
    blocks = [number for hunk in hunks(base, theirs) for number in hunk.blocks]
    wanted = data.draw(st.sets(st.sampled_from(blocks))) if blocks else set()
    part = select_blocks(base, theirs, wanted)
    assert merge3(part, part, theirs).content() == theirs
    lines = {line for text in (base, theirs) for line in text.splitlines()}
    assert set(part.splitlines()) <= lines


@given(texts(), texts())
def test_they_are_those_of_the_unified_diff(base: bytes, theirs: bytes) -> None:
    told = [line for line in unified_diff(base, theirs, old_label=b"a", new_label=b"b") if line[:1] in b" +-"][2:]
    assert [line for hunk in hunks(base, theirs) for line in hunk.lines] == told


def test_what_is_near_is_one_hunk_and_can_be_split() -> None:
    theirs = changed(n5="five", n8="eight", n25="later")
    first, second = hunks(BASE, theirs)
    assert (first.blocks, second.blocks) == ((0, 1), (2,))
    assert first.header == b"@@ -2,10 +2,10 @@\n"
    one, other = split_hunk(BASE, theirs, first)
    assert (one.blocks, other.blocks) == ((0,), (1,))
    assert one.lines == (b" 2\n", b" 3\n", b" 4\n", b"-5\n", b"+five\n", b" 6\n", b" 7\n")
    assert one.header == b"@@ -2,6 +2,6 @@\n"
    assert split_hunk(BASE, theirs, second) == (second,)


@pytest.mark.parametrize(
    ("base", "theirs", "header"),
    [
        (b"", b"1\n2\n", b"@@ -0,0 +1,2 @@\n"),
        (b"1\n2\n", b"", b"@@ -1,2 +0,0 @@\n"),
        (b"1", b"1\n", b"@@ -1,1 +1,1 @@\n"),
    ],
)
def test_headers_at_the_edges(base: bytes, theirs: bytes, header: bytes) -> None:
    assert [hunk.header for hunk in hunks(base, theirs)] == [header]


def test_a_last_line_without_a_newline_does_not_run_into_the_next() -> None:
    base, theirs = b"1\n2\n3\n4\n5\n6\n7\n8\nend", b"0\n1\n2\n3\n4\n5\n6\n7\n8\nend\nmore\n"
    assert select_blocks(base, theirs, [0]) == b"0\n1\n2\n3\n4\n5\n6\n7\n8\nend"
    assert select_blocks(base, theirs, [1]) == b"1\n2\n3\n4\n5\n6\n7\n8\nend\nmore\n"
