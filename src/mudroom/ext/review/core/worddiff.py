"""Differences within changed lines: similar lines in pairs, and the words in which they differ.

The work is bounded for a pair, for a block, and for everything that shares a ``Budget``. Lines over a limit are not
marked. Marks are always correct: without the marked characters, both lines in a pair hold the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.text.linediff import Block, diff_lines
from mudroom.core.text.regex import regex
from mudroom.typing import NamedTuple

Span = tuple[int, int]
Pair = tuple[int, int]

_TOKEN = regex(r"\w+|\s+|[^\w\s]")
_ALIKE = 0.5
"""Least similarity, from 0 to 1, at which two lines are paired and their differences marked."""
_PAIRS = 4_096
"""Most line pairs in a block that are compared for similarity."""
_MIDDLE = 4_096
"""Most word pairs that are compared between two lines' common beginning and end. Above it, all these words are marked
as one difference."""
_WORK = 1_000_000
"""Steps in a budget, each about 0.3 µs."""


class Budget:
    """The work that is left for one page."""

    def __init__(self, work: int = _WORK) -> None:
        self._left = work

    def spend(self, work: int) -> bool:
        """Subtract the work, or return False if less is left."""
        if work > self._left:
            return False
        self._left -= work
        return True


class WordDifference(NamedTuple):
    old: tuple[tuple[Span, ...], ...]
    """Each removed line's differing spans; empty if no added line is similar, or if it was not compared."""
    new: tuple[tuple[Span, ...], ...]


def diff_words(old: Sequence[str], new: Sequence[str], budget: Budget) -> WordDifference:
    """Return the differences within a changed block. ``old``, ``new``: its lines without their newlines."""
    before: list[tuple[Span, ...]] = [()] * len(old)
    after: list[tuple[Span, ...]] = [()] * len(new)
    for i, j in pair_lines(old, new, budget):
        before[i], after[j] = differing_spans(old[i], new[j], budget)
    return WordDifference(tuple(before), tuple(after))


def differing_spans(old: str, new: str, budget: Budget | None = None) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return the spans that differ between two lines; empty if the lines are not similar. ``budget``: may be shared."""
    a, b = _TOKEN.findall(old), _TOKEN.findall(new)
    left, right = _places(a), _places(b)
    blocks = _blocks(a, b, budget or Budget())
    before = _joined(old, [(left[block.old_start], left[block.old_end]) for block in blocks])
    after = _joined(new, [(right[block.new_start], right[block.new_end]) for block in blocks])
    same = 1 - (_length(before) + _length(after)) / (len(old) + len(new) or 1)
    return (before, after) if same >= _ALIKE / 2 else ((), ())


def _blocks(a: Sequence[str], b: Sequence[str], budget: Budget) -> list[Block]:
    start, least = 0, min(len(a), len(b))
    while start < least and a[start] == b[start]:
        start += 1
    end = 0
    while end < least - start and a[-1 - end] == b[-1 - end]:
        end += 1
    removed, added = a[start : len(a) - end], b[start : len(b) - end]
    work = len(removed) * len(added)
    if not work or work > _MIDDLE or not budget.spend(work):
        return [Block(start, len(a) - end, start, len(b) - end)] if removed or added else []
    return [Block(*(place + start for place in block)) for block in diff_lines(removed, added)]


def pair_lines(old: Sequence[str], new: Sequence[str], budget: Budget) -> list[Pair]:
    """Return pairs of removed and added lines, in order, with the greatest total similarity."""
    if not old or not new:
        return []
    if not budget.spend(len(old) + len(new)):
        return []
    before, after = [_bag(line) for line in old], [_bag(line) for line in new]
    many = len(old) * len(new)
    steps = 4 * many + len(new) * sum(len(found) for found, _length in before)
    if many <= _PAIRS and budget.spend(steps):
        return _chain(before, after)
    near = zip(before, after, strict=False)
    return [(place, place) for place, (a, b) in enumerate(near) if _similarity(a, b) >= _ALIKE]


_Bag = tuple[frozenset[str], int]


def _bag(line: str) -> _Bag:
    """Return a line's distinct words, and their total length in characters."""
    tokens = frozenset(token for token in _TOKEN.findall(line) if not token.isspace())
    return tokens, sum(map(len, tokens))


def _similarity(a: _Bag, b: _Bag) -> float:
    """Return two lines' similarity, from 0 (no common word) to 1 (the same words): the Sørensen-Dice coefficient, by
    characters."""
    total = a[1] + b[1]
    return 2 * sum(map(len, a[0] & b[0])) / total if total else 0.0


def _chain(old: Sequence[_Bag], new: Sequence[_Bag]) -> list[Pair]:
    """Return the pairs with the greatest total similarity that do not cross each other."""
    best = [[0.0] * (len(new) + 1) for _line in range(len(old) + 1)]
    likeness = [[_similarity(a, b) for b in new] for a in old]
    for i in reversed(range(len(old))):
        for j in reversed(range(len(new))):
            similarity = likeness[i][j]
            paired = similarity + best[i + 1][j + 1] if similarity >= _ALIKE else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    pairs_found: list[Pair] = []
    i = j = 0
    while i < len(old) and j < len(new):
        similarity = likeness[i][j]
        if similarity >= _ALIKE and best[i][j] == similarity + best[i + 1][j + 1]:
            pairs_found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs_found


def _places(tokens: Sequence[str]) -> list[int]:
    places = [0]
    for token in tokens:
        places.append(places[-1] + len(token))
    return places


def _joined(line: str, marked: Sequence[Span]) -> tuple[Span, ...]:
    """Return the spans, merging those with only whitespace between them."""
    result: list[Span] = []
    for start, end in marked:
        if start == end:
            continue
        if result and line[result[-1][1] : start].isspace():
            result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return tuple(result)


def _length(marked: Sequence[Span]) -> int:
    return sum(end - start for start, end in marked)
