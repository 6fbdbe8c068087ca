"""Merges two texts, ours and theirs, that come from the same base, line by line.

Rules of this file:

1. It knows bytes and nothing else. A line is what core/text/linediff.py takes for one; its end belongs to it.
2. Never clean where ``git merge-file`` conflicts, and the same bytes where both are clean. The other way round, it is
   sometimes careful where git is not.
3. A conflict is a value that holds all three sides.

The lines of the base that are sure of their partners on both sides (core/text/alignment.py) divide all three texts into
chunks. If one side of a chunk is what the base has, the other one is taken. If both sides are the same, so is the
result. Otherwise they conflict. Changes without an unchanged line between them lie in one chunk, and so conflict.

One thing is stranger than it seems: both sides may have made the same of a chunk, and yet git conflicts. If a line of
the base may belong to one line of the new text or to another, git may choose one of them on this side and another on
that, since the rest of the files differs, and even let a part of the change appear twice. Such a chunk is a conflict
here, too, unless both files are the same altogether.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from mudroom.core.text.alignment import align
from mudroom.core.text.linediff import split_lines

Kind = Literal["same", "ours", "theirs", "both", "conflict"]
Lines = tuple[bytes, ...]


class Chunk(NamedTuple):
    """Lines of the base, and what the two sides have made of them."""

    kind: Kind
    """Whose lines are taken; ``both``: both sides have made the same change."""
    base: Lines
    ours: Lines
    theirs: Lines

    @property
    def outcome(self) -> Lines:
        """What comes of it, unless it is a conflict."""
        return self.theirs if self.kind == "theirs" else self.ours


class MergedText(NamedTuple):
    """A merge, perhaps with conflicts. The sides of the chunks, one after the other, are the sides of the merge."""

    chunks: tuple[Chunk, ...]

    @property
    def conflicts(self) -> int:
        return sum(chunk.kind == "conflict" for chunk in self.chunks)

    @property
    def clean(self) -> bool:
        return not self.conflicts

    def content(self) -> bytes:
        """Returns the result. Raises ValueError if there is a conflict."""
        if not self.clean:
            raise ValueError(f"conflicts: {self.conflicts}")
        return b"".join(line for chunk in self.chunks for line in chunk.outcome)


def merge3(base: bytes, ours: bytes, theirs: bytes) -> MergedText:
    """Merges what ours and theirs have made of the base. Whether they are texts at all is for the caller to know."""
    return MergedText(tuple(_chunks(*map(split_lines, (base, ours, theirs)), equal=ours == theirs)))


def _chunks(base: list[bytes], ours: list[bytes], theirs: list[bytes], *, equal: bool) -> Iterator[Chunk]:
    ids: dict[bytes, int] = {}
    old, new, other = ([ids.setdefault(line, len(ids)) for line in side] for side in (base, ours, theirs))
    mine, yours = align(old, new), align(old, other)
    doubtful: set[int] = set() if equal else mine.doubtful | yours.doubtful
    first = i = j = k = 0  # the first line that is still to be given out; what follows the last line that is sure
    for x, (y, z) in enumerate(zip([*mine.partners, len(new)], [*yours.partners, len(other)], strict=True)):
        if y < 0 or z < 0:
            continue
        if (x, y, z) != (i, j, k):
            yield from _unchanged(base[first:i])
            first = x
            sides = tuple(base[i:x]), tuple(ours[j:y]), tuple(theirs[k:z])
            kind = _kind(*sides)
            yield Chunk("conflict" if kind == "both" and not doubtful.isdisjoint(range(i, x)) else kind, *sides)
        i, j, k = x + 1, y + 1, z + 1
    yield from _unchanged(base[first:])


def _unchanged(lines: list[bytes]) -> Iterator[Chunk]:
    if lines:
        yield Chunk("same", tuple(lines), tuple(lines), tuple(lines))


def _kind(base: Lines, ours: Lines, theirs: Lines) -> Kind:
    if ours == theirs:
        return "same" if ours == base else "both"
    return "theirs" if ours == base else "ours" if theirs == base else "conflict"
