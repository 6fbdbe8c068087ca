"""Similarity index of two contents, as git shows it beside a rename.

1. A content is split into spans: its lines, with lines longer than 64 bytes cut into pieces of 64 bytes. Only the
   number of occurrences of each span counts, not its position: reordered lines are equal. In text, the carriage return
   of a line end is ignored.
2. The score is the number of bytes of the old content that occur in the new one, divided by the size of the larger
   content.

This is git's algorithm: diffcore-delta.c (``hash_chars``, ``diffcore_count_changes``) and diffcore-rename.c
(``estimate_similarity``). git stores hashes of spans, this module the spans themselves. Bytes after the last newline
count, as in git since 2.44.
"""

from __future__ import annotations

from collections import Counter

from mudroom.core.text.linediff import is_binary, split_lines
from mudroom.typing import NamedTuple

FULL = 60_000
"""The score of identical contents: MAX_SCORE in diffcore.h."""
LEAST = FULL // 2
"""Lowest score of a rename: git's DEFAULT_RENAME_SCORE."""
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
            counts.update(line[start : start + _SPAN] for start in range(0, len(line), _SPAN))
    return Spans(len(data), counts)


def can_be_similar(old: int, new: int, least: int = LEAST) -> bool:
    """Return whether contents of these sizes in bytes can reach the score ``least``. Empty contents cannot."""
    return FULL * min(old, new) >= least * max(old, new) > 0


def score(old: Spans, new: Spans) -> int:
    """Return the similarity, from 0 to FULL."""
    few, many = sorted((old.counts, new.counts), key=len)
    copied = sum(min(count, many[span]) * len(span) for span, count in few.items() if span in many)
    return copied * FULL // max(old.size, new.size, 1)


def percent(score: int) -> int:
    """Return the score in percent, rounded down as in git."""
    return score * 100 // FULL
