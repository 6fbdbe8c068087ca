"""How much of one content is in another: the similarity index that git shows beside a rename.

1. A content is counted in spans: its lines, and of what is longer than 64 bytes a piece of so many. How often each of
   them is there is all that counts, not where: lines that have changed places are the same. The carriage return of a
   line end counts for nothing in a text.
2. The score is how many bytes of the old one are in the new one, of the bytes of the larger one.

That is what git does: diffcore-delta.c (``hash_chars``, ``diffcore_count_changes``) and diffcore-rename.c
(``estimate_similarity``). It keeps hashes of spans, here they are the spans themselves; and what stands behind the last
newline counts, as it does since git 2.44.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from mudroom.core.text.linediff import is_binary, split_lines

FULL = 60_000
"""A score: all of it. MAX_SCORE in diffcore.h."""
LEAST = FULL // 2
"""From which on git takes two files for one that was moved: DEFAULT_RENAME_SCORE there."""
_SPAN = 64


class Spans(NamedTuple):
    size: int
    """Bytes of the content."""
    counts: Counter[bytes]


def spans(data: bytes) -> Spans:
    lines = split_lines(data if is_binary(data) else data.replace(b"\r\n", b"\n"))
    counts = Counter(line for line in lines if len(line) <= _SPAN)
    for line in lines:
        if len(line) > _SPAN:
            counts.update(line[at : at + _SPAN] for at in range(0, len(line), _SPAN))
    return Spans(len(data), counts)


def can_be_similar(old: int, new: int, least: int = LEAST) -> bool:
    """Whether contents of so many bytes can have that score. Empty ones have none."""
    return FULL * min(old, new) >= least * max(old, new) > 0


def score(old: Spans, new: Spans) -> int:
    """From 0 to FULL."""
    few, many = sorted((old.counts, new.counts), key=len)
    copied = sum(min(count, many[span]) * len(span) for span, count in few.items() if span in many)
    return copied * FULL // max(old.size, new.size, 1)


def percent(score: int) -> int:
    """As git writes it: rounded down."""
    return score * 100 // FULL
