"""Selectable hunks: each covers a block of changed lines, or several blocks close together."""

from __future__ import annotations

from collections.abc import Collection

from mudroom.core.text.linediff import Block, diff_lines, grouped, split_lines
from mudroom.typing import NamedTuple

Lines = tuple[bytes, ...]


class Hunk(NamedTuple):
    blocks: tuple[int, ...]
    """Its changed blocks, numbered from 0 through the whole file."""
    header: bytes
    """As in a unified diff: ``@@ -1,3 +1,4 @@``."""
    lines: Lines
    """With their signs, as in a unified diff."""


class _Texts(NamedTuple):
    old: list[bytes]
    new: list[bytes]
    blocks: list[Block]
    context: int


def hunks(base: bytes, theirs: bytes, context: int = 3) -> tuple[Hunk, ...]:
    """Return the hunks in order. Blocks with at most ``2 * context`` equal lines between them share a hunk."""
    texts = _texts(base, theirs, context)
    return tuple(_hunk(texts, tuple(group)) for group in grouped(texts.blocks, context))


def split_hunk(base: bytes, theirs: bytes, hunk: Hunk) -> tuple[Hunk, ...]:
    """Return a hunk split into one hunk for each block; a hunk with a single block is returned alone."""
    texts = _texts(base, theirs, 3)
    return tuple(_hunk(texts, (number,)) for number in hunk.blocks)


def select_blocks(base: bytes, theirs: bytes, chosen: Collection[int]) -> bytes:
    """Return the base with only these blocks changed. All blocks: theirs; no blocks: the base."""
    texts = _texts(base, theirs, 0)
    result: list[bytes] = []
    at = 0
    for number, block in enumerate(texts.blocks):
        result += texts.old[at : block.old_start]
        if number in chosen:
            result += texts.new[block.new_start : block.new_end]
        else:
            result += texts.old[block.old_start : block.old_end]
        at = block.old_end
    return _joined(result + texts.old[at:])


def _joined(lines: list[bytes]) -> bytes:
    """Return the joined lines. A line without a newline that is no longer the last gets a newline, or it would run into
    the next."""
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines[:-1]) + b"".join(lines[-1:])


def _texts(base: bytes, theirs: bytes, context: int) -> _Texts:
    old, new = split_lines(base), split_lines(theirs)
    return _Texts(old, new, diff_lines(old, new), context)


def _hunk(texts: _Texts, group: tuple[int, ...]) -> Hunk:
    old, new, blocks, context = texts
    first, last = blocks[group[0]], blocks[group[-1]]
    before = blocks[group[0] - 1].old_end if group[0] else 0
    after = blocks[group[-1] + 1].old_start if group[-1] + 1 < len(blocks) else len(old)
    start, end = max(before, first.old_start - context), min(after, last.old_end + context)
    lines: list[bytes] = []
    at = start
    for number in group:
        block = blocks[number]
        lines += (b" " + line for line in old[at : block.old_start])
        lines += (b"-" + line for line in old[block.old_start : block.old_end])
        lines += (b"+" + line for line in new[block.new_start : block.new_end])
        at = block.old_end
    lines += (b" " + line for line in old[at:end])
    lead = first.old_start - start
    header = b"@@ -%d,%d +%d,%d @@\n" % (
        _first(start, end),
        end - start,
        _first(first.new_start - lead, last.new_end + end - last.old_end),
        last.new_end + end - last.old_end - first.new_start + lead,
    )
    return Hunk(group, header, tuple(line if line.endswith(b"\n") else line + b"\n" for line in lines))


def _first(start: int, end: int) -> int:
    """Return a line number counted from 1; for an empty range, the preceding line's number."""
    return start + (end > start)
