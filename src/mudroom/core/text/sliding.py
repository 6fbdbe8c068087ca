"""Where the blocks of a comparison come to rest, if they could lie at several places.

Inserting "b a" before "b" is the same as inserting "a b" after it: a block can *slide* over an equal line. Which of the
places a comparison finds first is chance, so blocks are moved to a place that does not depend on it. The rule is git's:
as low as it can, but lowest beside a change of the other side, if it can lie beside one. Sliding up first, as far as it
goes, lets a block join those that it meets.

An alignment is a tuple of matches: (old line, new line), rising on both sides. What is not matched lies in the gaps
between; gap 0 lies before the first match.
"""

from __future__ import annotations

from collections.abc import Sequence

Matches = tuple[tuple[int, int], ...]


def every_alignment(old: Sequence[int], new: Sequence[int], most: int) -> list[Matches] | None:
    """Returns all alignments with as many matches as possible, or None if there are more than ``most``."""
    left = _common_lengths(old, new)
    found: list[Matches] = []
    begun: list[tuple[int, int, Matches]] = [(0, 0, ())]
    while begun:
        i, j, matches = begun.pop()
        missing = left[i][j]
        if not missing:
            found.append(matches)
        else:
            begun += [(x + 1, y + 1, (*matches, (x, y))) for x, y in _next_matches(old, new, left, i, j)]
        if len(found) + len(begun) > most:  # from each that is begun, at least one comes
            return None
    return found


def _common_lengths(old: Sequence[int], new: Sequence[int]) -> list[list[int]]:
    """The length of the longest common subsequence of old[i:] and new[j:], for all i and j."""
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
    """The matches that may come next, nothing before them being matched."""
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


def settled(old: Sequence[int], new: Sequence[int], matches: Matches) -> Matches:
    """Returns the alignment with its blocks at rest: first those of the old side, then those of the new one."""
    # Ends that match nothing and never move: before the first line, behind the last.
    xs = [-1, *(x for x, _ in matches), len(old)]
    ys = [-1, *(y for _, y in matches), len(new)]
    _settle(old, xs, ys)
    _settle(new, ys, xs)
    return tuple(zip(xs[1:-1], ys[1:-1], strict=True))


def _settle(lines: Sequence[int], own: list[int], other: list[int]) -> None:
    """Moves the unmatched lines of one side; gap g lies between own[g] and own[g + 1], and faces other's gap g."""
    gap = 0
    while gap < len(own) - 1:
        if own[gap + 1] - own[gap] > 1:
            gap = _settle_block(lines, own, other, gap)
        gap += 1


def _settle_block(lines: Sequence[int], own: list[int], other: list[int], gap: int) -> int:
    """Moves the block in this gap, and whatever it meets; returns the gap where it stays."""
    size = 0
    while size != own[gap + 1] - own[gap]:  # it met another: the two may go where neither could
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
    """The last line of the block is matched instead of the one before the block."""
    own[gap] = own[gap + 1] - 1
    return gap - 1
