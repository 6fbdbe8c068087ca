"""The position of changed blocks that could lie at several places.

Inserting "b a" before "b" is the same as inserting "a b" after it: a block can *slide* over an equal line. The place
that a comparison finds first is arbitrary, so blocks are moved to a place that does not depend on it. The rule is
git's: as low as possible; but if the block can lie beside a change on the other side, at the lowest such place. Sliding
up as far as possible first lets a block join the blocks that it meets.

An alignment is a tuple of matches (old line, new line), ascending on both sides. Unmatched lines lie in the gaps
between; gap 0 lies before the first match.
"""

from __future__ import annotations

from collections.abc import Sequence

Matches = tuple[tuple[int, int], ...]


def every_alignment(old: Sequence[int], new: Sequence[int], most: int) -> list[Matches] | None:
    """Return all alignments with as many matches as possible, or None if there are more than ``most``."""
    left = _common_lengths(old, new)
    alignments: list[Matches] = []
    started: list[tuple[int, int, Matches]] = [(0, 0, ())]
    while started:
        i, j, matches = started.pop()
        missing = left[i][j]
        if not missing:
            alignments.append(matches)
        else:
            started += [(x + 1, y + 1, (*matches, (x, y))) for x, y in _next_matches(old, new, left, i, j)]
        if len(alignments) + len(started) > most:  # each started alignment leads to at least one
            return None
    return alignments


def _common_lengths(old: Sequence[int], new: Sequence[int]) -> list[list[int]]:
    """Return the length of the longest common subsequence of old[i:] and new[j:], for all i and j."""
    rows = [[0] * (len(new) + 1)]
    for line in reversed(old):
        below, row = rows[-1], [0]
        for j in range(len(new) - 1, -1, -1):
            row.append(below[j + 1] + 1 if line == new[j] else max(below[j], row[-1]))
        rows.append(row[::-1])
    return rows[::-1]


def _next_matches(
    old: Sequence[int], new: Sequence[int], left: list[list[int]], i: int, j: int
) -> list[tuple[int, int]]:
    """Return the matches that may come next, with no match before them."""
    missing = left[i][j]
    matches = []
    for x in range(i, len(old)):
        if left[x][j] < missing:
            break
        for y in range(j, len(new)):
            if left[x][y] < missing:
                break
            if old[x] == new[y] and left[x + 1][y + 1] == missing - 1:
                matches.append((x, y))
    return matches


def settle(old: Sequence[int], new: Sequence[int], matches: Matches) -> Matches:
    """Return the alignment with its blocks at rest: first the old side's blocks, then the new side's."""
    # Sentinels that match no line and never move: before the first line, after the last.
    xs = [-1, *(x for x, _ in matches), len(old)]
    ys = [-1, *(y for _, y in matches), len(new)]
    _settle(old, xs, ys)
    _settle(new, ys, xs)
    return tuple(zip(xs[1:-1], ys[1:-1], strict=True))


def _settle(lines: Sequence[int], own: list[int], other: list[int]) -> None:
    """Move one side's unmatched lines; gap g lies between own[g] and own[g + 1], and faces the other side's gap g."""
    gap = 0
    while gap < len(own) - 1:
        if own[gap + 1] - own[gap] > 1:
            gap = _settle_block(lines, own, other, gap)
        gap += 1


def _settle_block(lines: Sequence[int], own: list[int], other: list[int], gap: int) -> int:
    """Move the block in this gap, with the blocks that it meets; return the gap where it stays."""
    size = 0
    while size != own[gap + 1] - own[gap]:  # it met another block: both together may slide further
        size = own[gap + 1] - own[gap]
        while gap > 0 and lines[own[gap]] == lines[own[gap + 1] - 1]:
            gap = _up(own, gap)
        beside = -1
        while True:
            if other[gap + 1] - other[gap] > 1:
                beside = gap
            if gap + 2 == len(own) or lines[own[gap + 1]] != lines[own[gap] + 1]:
                break
            own[gap + 1] = own[gap] + 1
            gap += 1
    while 0 <= beside < gap:
        gap = _up(own, gap)
    return gap


def _up(own: list[int], gap: int) -> int:
    """Match the block's last line instead of the line before the block."""
    own[gap] = own[gap + 1] - 1
    return gap - 1
