"""Merges two texts that come from the same base."""

from __future__ import annotations

from typing import Literal, NamedTuple

from mudroom.core.alignment import align
from mudroom.core.linediff import split_lines

Lines = tuple[bytes, ...]
GUARD = True


class Chunk(NamedTuple):
    kind: Literal["same", "ours", "theirs", "both", "conflict"]
    base: Lines
    ours: Lines
    theirs: Lines


class Merged(NamedTuple):
    chunks: tuple[Chunk, ...]

    @property
    def conflicts(self) -> int:
        return sum(chunk.kind == "conflict" for chunk in self.chunks)

    @property
    def clean(self) -> bool:
        return not self.conflicts

    def content(self) -> bytes:
        if not self.clean:
            raise ValueError("conflicts")
        return b"".join(b"".join(c.theirs if c.kind == "theirs" else c.ours) for c in self.chunks)


def _kind(base: Lines, ours: Lines, theirs: Lines):
    if ours == theirs:
        return "same" if ours == base else "both"
    return "theirs" if ours == base else "ours" if theirs == base else "conflict"


def merge3(base: bytes, ours: bytes, theirs: bytes) -> Merged:
    b, o, t = split_lines(base), split_lines(ours), split_lines(theirs)
    ids = {}
    bi, oi, ti = ([ids.setdefault(l, len(ids)) for l in side] for side in (b, o, t))
    (po, d1), (pt, d2) = align(bi, oi), align(bi, ti)
    doubt = d1 | d2
    chunks = []
    i = j = k = 0
    same = []
    for x, (y, z) in enumerate(zip([*po, len(o)], [*pt, len(t)], strict=True)):
        if y < 0 or z < 0:
            continue
        if x > i or y > j or z > k:
            if same:
                s = tuple(same); chunks.append(Chunk("same", s, s, s)); same = []
            B, O, T = tuple(b[i:x]), tuple(o[j:y]), tuple(t[k:z])
            kind = _kind(B, O, T)
            if kind == "both" and GUARD and any(w in doubt for w in range(i, x)):
                kind = "conflict"
            chunks.append(Chunk(kind, B, O, T))
        if x < len(b):
            same.append(b[x])
        i, j, k = x + 1, y + 1, z + 1
    if same:
        s = tuple(same); chunks.append(Chunk("same", s, s, s))
    return Merged(tuple(chunks))
