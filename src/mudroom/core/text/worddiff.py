"""What is different within lines that were changed: pairs of lines that are alike, and the words that are not.

The work is bounded: a pair, a block of lines and all that one ``Budget`` is spent on. What is too much is not marked,
and what is marked is always right: without the marked characters, both lines of a pair hold the same words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mudroom.core.text.linediff import Block, diff_lines

Span = tuple[int, int]
Pair = tuple[int, int]

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_ALIKE = 0.5
"""How much of two lines has to be the same, from 0 to 1, for their differences to be worth a mark."""
_PAIRS = 4_096
"""Of lines in one block that are compared for being alike."""
_MIDDLE = 4_096
"""Of the words between what two lines begin and end with alike: the product of how many each has. Above that, all of
them are marked as one."""
_WORK = 1_000_000
"""Steps, of some 0.3 µs, that one budget holds."""


class Budget:
    """What may still be spent on one page."""

    def __init__(self, work: int = _WORK) -> None:
        self._left = work

    def spend(self, work: int) -> bool:
        """False: there is not so much left."""
        if work > self._left:
            return False
        self._left -= work
        return True


class WordDifference(NamedTuple):
    old: tuple[tuple[Span, ...], ...]
    """For each removed line, what of it is different; nothing: it is not like any added one, or was not compared."""
    new: tuple[tuple[Span, ...], ...]


def words(old: Sequence[str], new: Sequence[str], budget: Budget) -> WordDifference:
    """``old``, ``new``: the lines of one changed block, without their ends."""
    before: list[tuple[Span, ...]] = [()] * len(old)
    after: list[tuple[Span, ...]] = [()] * len(new)
    for i, j in pairs(old, new, budget):
        before[i], after[j] = spans(old[i], new[j], budget)
    return WordDifference(tuple(before), tuple(after))


def spans(old: str, new: str, budget: Budget | None = None) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The words that differ between two lines; of lines that are not alike, nothing. ``budget``: shared with others."""
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
    gone, come = a[start : len(a) - end], b[start : len(b) - end]
    work = len(gone) * len(come)
    if not work or work > _MIDDLE or not budget.spend(work):
        return [Block(start, len(a) - end, start, len(b) - end)] if gone or come else []
    return [Block(*(place + start for place in block)) for block in diff_lines(gone, come)]


def pairs(old: Sequence[str], new: Sequence[str], budget: Budget) -> list[Pair]:
    """Which removed line became which added one: in order, and as alike as can be."""
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
    return [(place, place) for place, (a, b) in enumerate(near) if _alike(a, b) >= _ALIKE]


_Bag = tuple[frozenset[str], int]


def _bag(line: str) -> _Bag:
    """Its words, and how many characters they have."""
    found = frozenset(token for token in _TOKEN.findall(line) if not token.isspace())
    return found, sum(map(len, found))


def _alike(a: _Bag, b: _Bag) -> float:
    """0: nothing in common; 1: the same words. (Sørensen and Dice, by characters.)"""
    total = a[1] + b[1]
    return 2 * sum(map(len, a[0] & b[0])) / total if total else 0.0


def _chain(old: Sequence[_Bag], new: Sequence[_Bag]) -> list[Pair]:
    """The pairs of the most likeness in all that do not cross each other."""
    best = [[0.0] * (len(new) + 1) for _line in range(len(old) + 1)]
    likeness = [[_alike(a, b) for b in new] for a in old]
    for i in reversed(range(len(old))):
        for j in reversed(range(len(new))):
            taken = likeness[i][j]
            paired = taken + best[i + 1][j + 1] if taken >= _ALIKE else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    found: list[Pair] = []
    i = j = 0
    while i < len(old) and j < len(new):
        taken = likeness[i][j]
        if taken >= _ALIKE and best[i][j] == taken + best[i + 1][j + 1]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def _places(tokens: Sequence[str]) -> list[int]:
    places = [0]
    for token in tokens:
        places.append(places[-1] + len(token))
    return places


def _joined(line: str, found: Sequence[Span]) -> tuple[Span, ...]:
    """Spans with nothing but space between them are one."""
    result: list[Span] = []
    for start, end in found:
        if start == end:
            continue
        if result and line[result[-1][1] : start].isspace():
            result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return tuple(result)


def _length(found: Sequence[Span]) -> int:
    return sum(end - start for start, end in found)
