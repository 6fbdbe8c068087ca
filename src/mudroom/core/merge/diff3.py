"""Three-way merge of two texts, ours and theirs, with a common base, line by line.

Rules:

1. The input is bytes. Lines are split as in core/text/linediff.py; the line end belongs to the line.
2. The merge is never clean where ``git merge-file`` conflicts, and gives the same bytes where both are clean. It
   sometimes conflicts where git does not.
3. A conflict is a value that holds all three sides.

Base lines with a certain partner on both sides (core/text/alignment.py) divide all three texts into chunks. If one side
of a chunk equals the base, the other side is taken. If both sides are equal, that is the result. Otherwise the chunk is
a conflict. Changes without an unchanged line between them are in one chunk, and so conflict.

Git can report a conflict even if both sides made the same change to a chunk. If a base line can be matched with more
than one new line, git may choose different matches for the two sides, because the rest of the files differs, and may
even include a part of the change twice. Such a chunk is a conflict here, too, unless both files are identical.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.text.alignment import align
from mudroom.core.text.linediff import split_lines
from mudroom.typing import Literal, NamedTuple

Kind = Literal["same", "ours", "theirs", "both", "conflict"]
Lines = tuple[bytes, ...]


class Chunk(NamedTuple):
    """Base lines and the corresponding lines on both sides."""

    kind: Kind
    """The side whose lines are taken; ``both``: both sides made the same change."""
    base: Lines
    ours: Lines
    theirs: Lines

    @property
    def outcome(self) -> Lines:
        """The merged lines; meaningless for a conflict."""
        return self.theirs if self.kind == "theirs" else self.ours


class MergedText(NamedTuple):
    """A merge result, possibly with conflicts. A side's concatenated chunks are its text."""

    chunks: tuple[Chunk, ...]

    @property
    def conflicts(self) -> int:
        return sum(chunk.kind == "conflict" for chunk in self.chunks)

    @property
    def clean(self) -> bool:
        return not self.conflicts

    def content(self) -> bytes:
        """Return the merged text. Raise ValueError if there is a conflict."""
        if not self.clean:
            raise ValueError(f"conflicts: {self.conflicts}")
        return b"".join(line for chunk in self.chunks for line in chunk.outcome)


def merge3(base: bytes, ours: bytes, theirs: bytes) -> MergedText:
    """Merge the changes that ours and theirs made to the base. The caller checks that the inputs are texts."""
    return MergedText(tuple(_chunks(*map(split_lines, (base, ours, theirs)), equal=ours == theirs)))


def _chunks(base: list[bytes], ours: list[bytes], theirs: list[bytes], *, equal: bool) -> Iterator[Chunk]:
    ids: dict[bytes, int] = {}
    base_ids, our_ids, their_ids = ([ids.setdefault(line, len(ids)) for line in side] for side in (base, ours, theirs))
    our_alignment, their_alignment = align(base_ids, our_ids), align(base_ids, their_ids)
    doubtful: set[int] = set() if equal else our_alignment.doubtful | their_alignment.doubtful
    first = i = j = k = 0  # first: first line not yet yielded; i, j, k: the lines after the last certain match
    for x, (y, z) in enumerate(
        zip([*our_alignment.partners, len(our_ids)], [*their_alignment.partners, len(their_ids)], strict=True)
    ):
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
