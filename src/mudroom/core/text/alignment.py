"""Find the lines in two texts that certainly correspond.

A comparison picks one of many shortest edit scripts, and the choice is arbitrary. A merge that relied on it might call
lines unchanged that another comparison of the same texts calls changed. So this comparison considers all shortest
scripts:

1. A line is *sure* of its partner if every shortest script matches the two. All changes lie between sure lines.
2. No other line is sure. A region that cannot be examined in full (too many edits, too many alignments) has no sure
   lines.
3. The functions work on numbers only: equal lines have equal numbers.

All shortest scripts are examined without listing them. Let F(x, y) be the least number of edits from the start to the
point before old line x and new line y, and R(x, y) the least number from there to the end. Along a diagonal (x - y ==
k) F does not fall and R does not rise. Myers' greedy search yields each diagonal's furthest x with F <= d, and a search
from the end the first x with R <= D - d. Between them lie the points on shortest scripts, all with D edits. Let the
lowest point in column x (the largest y) be (x, y), and the highest in column x + 1 be (x + 1, y + 1): then every script
gets from one column to the other by matching old line x with new line y. Conversely, a line that is always matched
leads to exactly these points.

If there are few scripts between two sure lines, each is brought to rest: a block that could lie
at several places lies at one, and the lines around it become sure, too.

The scripts are those that git would consider, so that git's result is among them:

* Lines that the other side lacks are set aside. No script can match them.
* Lines that are frequent on the other side are set aside as well if they stand among such lines: a blank line inside a
  new function does not correspond to any earlier blank line.
* With more than _MAX_EDITS edits, git guesses. Then only the common beginning and end are sure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from mudroom.core.text.linediff import Block
from mudroom.typing import NamedTuple

# --- The position of changed blocks that could lie at several places ---
# Inserting "b a" before "b" is the same as inserting "a b" after it: a block can *slide* over an equal line. The place
# that a comparison finds first is arbitrary, so blocks are moved to a place that does not depend on it. The rule is
# git's: as low as possible; but if the block can lie beside a change on the other side, at the lowest such place.
# Sliding up as far as possible first lets a block join the blocks that it meets.
#
# An alignment is a tuple of matches (old line, new line), ascending on both sides. Unmatched lines lie in the gaps
# between; gap 0 lies before the first match.


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


# Up to this number git finds a shortest script, too: it searches from both ends, and guesses after 256 edits on each.
_MAX_EDITS = 512
# How far git looks for lines that the other side lacks, and its upper limit for the count that makes a line frequent.
_WINDOW = 100
_FREQUENT = 1024
# Limits for a full examination: one side's lines times the other side's lines; number of alignments.
_TABLE = 10_000
_WAYS = 200
# Total work, in table cells and matches in alignments: about a quarter of a second.
_WORK = 1_000_000

_Rows = list[tuple[int, list[int]]]


class Alignment(NamedTuple):
    """The known correspondence between two texts."""

    partners: list[int]
    """For each old line the new line that certainly corresponds, or -1."""
    doubtful: set[int]
    """Old lines that may correspond to one new line or to another."""


class _Side(NamedTuple):
    """A text without the lines that are set aside."""

    places: list[int]
    lines: list[int]
    frequent: set[int]
    """Indexes that are set aside although the other side has their lines."""


def align(old: Sequence[int], new: Sequence[int]) -> Alignment:
    """Return how two texts align, given as one number for each line."""
    counts, new_counts = Counter(old), Counter(new)
    head, tail = _common_ends(old, new)
    a, b = _side(old, new_counts, head, tail), _side(new, counts, head, tail)
    head, tail = _common_ends(a.lines, b.lines)
    # A line that occurs once on both sides is sure if all lines before it are equal: leaving it out would lose a match.
    start = _behind_unique(a.lines[:head], counts, new_counts)
    end = _behind_unique(a.lines[len(a.lines) - tail :][::-1], counts, new_counts)
    pairs = _sure_matches(_middle(a.lines, start, end), _middle(b.lines, start, end))
    guessed = pairs is None and head + tail < min(len(a.lines), len(b.lines))
    partners = [-1] * len(old)
    for x, y in zip(a.places[:start], b.places[:start], strict=True):
        partners[x] = y
    for x, y in zip(a.places[len(a.places) - end :], b.places[len(b.places) - end :], strict=True):
        partners[x] = y
    for x, y in pairs or ():
        partners[a.places[start + x]] = b.places[start + y]
    if a.frequent or b.frequent:
        _widen(old, new, partners, a.frequent, b.frequent)
    return _refined(old, new, partners, set(a.places), set(b.places), work=0 if guessed else _WORK)


def gaps(partners: Sequence[int], new_length: int) -> Iterator[Block]:
    """Yield the ranges between sure lines where either side has other lines."""
    x = y = 0
    for i, j in enumerate(partners):
        if j < 0:
            continue
        if i > x or j > y:
            yield Block(x, i, y, j)
        x, y = i + 1, j + 1
    if x < len(partners) or y < new_length:
        yield Block(x, len(partners), y, new_length)


def _common_ends(a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
    """Return how many lines are equal at the beginning, and how many of the remaining at the end."""
    shorter = min(len(a), len(b))
    head = next((n for n in range(shorter) if a[n] != b[n]), shorter)
    rest = shorter - head
    return head, next((n for n in range(rest) if a[-1 - n] != b[-1 - n]), rest)


def _middle(lines: list[int], start: int, end: int) -> list[int]:
    return lines[start : len(lines) - end]


def _behind_unique(lines: Sequence[int], counts: Counter[int], new_counts: Counter[int]) -> int:
    """Return how many lines there are up to and including the last one that occurs once on both sides."""
    unique = (n for n in range(len(lines), 0, -1) if counts[lines[n - 1]] == 1 == new_counts[lines[n - 1]])
    return next(unique, 0)


def _side(lines: Sequence[int], other_counts: Counter[int], head: int, tail: int) -> _Side:
    """Set aside the lines that the other side lacks, and frequent lines that stand among them."""
    often = min(1 << (len(lines).bit_length() + 1) // 2, _FREQUENT)  # near the square root, as git computes it
    occurs = [other_counts[line] for line in lines[head : len(lines) - tail]]
    # For each line: the other side lacks it (0), has it (1), or has it often (2).
    kinds = bytes(0 if not count else 1 if count < often else 2 for count in occurs)
    aside = {head + n for n, kind in enumerate(kinds) if not kind}
    frequent = {head + n for n, kind in enumerate(kinds) if kind == 2 and _is_lost(kinds, n)}
    places = [n for n in range(len(lines)) if n not in aside and n not in frequent]
    return _Side(places, [lines[n] for n in places], frequent)


def _is_lost(kinds: bytes, n: int) -> bool:
    """Return whether a frequent line stands among lines that the other side lacks.

    The lines around it count, up to the next ordinary line: lacking lines must stand above and below, and make up more
    than three quarters in all. The line itself counts twice, as in git.
    """
    above = kinds[max(0, n - _WINDOW) : n].rpartition(b"\1")[2]
    below = kinds[n + 1 : n + 1 + _WINDOW].partition(b"\1")[0]
    lacking = above.count(0), below.count(0)
    return all(lacking) and 3 * (len(above) + len(below) - sum(lacking) + 2) < sum(lacking)


def _widen(
    old: Sequence[int],
    new: Sequence[int],
    partners: list[int],
    frequent: Collection[int],
    new_frequent: Collection[int],
) -> None:
    """Remove sure matches beside a gap with frequent lines that were set aside, as far as a block might slide.

    A block that begins or ends with such a line may slide over an equal line, which is then no longer matched. The
    search does not take that into account.
    """
    before = -1
    while before != (before := partners.count(-1)):
        for gap in list(gaps(partners, len(new))):
            old_range, new_range = range(gap.old_start, gap.old_end), range(gap.new_start, gap.new_end)
            if any(x in frequent for x in old_range) or any(y in new_frequent for y in new_range):
                inside = {*(old[x] for x in old_range), *(new[y] for y in new_range)}
                for way in (range(gap.old_start - 1, -1, -1), range(gap.old_end, len(old))):
                    for x in way:
                        if old[x] not in inside:
                            break
                        partners[x] = -1


def _refined(
    old: Sequence[int], new: Sequence[int], partners: list[int], places: set[int], new_places: set[int], work: int
) -> Alignment:
    """Examine all alignments within each gap, brought to rest, until the work is used up."""
    doubtful: set[int] = set()
    for gap in list(gaps(partners, len(new))):
        x, x_end, y, y_end = gap
        xs, ys = [n for n in range(x, x_end) if n in places], [n for n in range(y, y_end) if n in new_places]
        if not xs or not ys:
            continue
        alignments = None
        work -= len(xs) * len(ys)
        if len(xs) * len(ys) <= _TABLE and work > 0:
            alignments = every_alignment([old[n] for n in xs], [new[n] for n in ys], _WAYS)
        if alignments is None:
            shared = {new[n] for n in range(y, y_end)}
            doubtful.update(n for n in range(x, x_end) if old[n] in shared)
            continue
        work -= sum(map(len, alignments)) * 4
        ways = {settle(old[x:x_end], new[y:y_end], tuple((xs[i] - x, ys[j] - y) for i, j in way)) for way in alignments}
        for i, j in set[tuple[int, int]].intersection(*map(set, ways)):
            partners[x + i] = y + j
        doubtful.update(x + i for i in _several(ways))
    return Alignment(partners, doubtful)


def _several(ways: Collection[Matches]) -> set[int]:
    """Return the old lines that are matched with different new lines."""
    pairs = {pair for way in ways for pair in way}
    return {i for i, count in Counter(i for i, _ in pairs).items() if count > 1}


def _sure_matches(a: list[int], b: list[int]) -> list[tuple[int, int]] | None:
    """Return the matches that all shortest scripts have in common, or None if the scripts have too many edits."""
    forward = _reaches(a, b, _MAX_EDITS)
    if forward is None:
        return None
    backward = _reaches(a[::-1], b[::-1], len(forward) - 1)
    assert backward is not None, "it is as far from the end as from the start"
    least, most = _columns(len(a), len(b), forward, backward)
    return [(x, x - k) for x, (k, behind) in enumerate(zip(least, most[1:], strict=False)) if k == behind]


def _reaches(a: list[int], b: list[int], limit: int) -> _Rows | None:
    """Run Myers' greedy search. Return, for each number of edits, the first diagonal and the furthest x on every second
    diagonal from there.

    A diagonal that leaves the rectangle stays at its edge: reaching the edge takes no more edits than going beyond it.
    """
    n, m = len(a), len(b)
    furthest = [0] * (2 * limit + 3)  # by diagonal; a negative one is a negative index
    rows: _Rows = []
    for edits in range(limit + 1):
        first, last = 2 * max(0, edits - m) - edits, edits - 2 * max(0, edits - n)
        row = []
        for k in range(first, last + 1, 2):
            if k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1]):
                x = furthest[k + 1]
            else:
                x = furthest[k - 1] + 1
            if x > n or x - k > m:
                x = min(n, m + k)
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            furthest[k] = x
            row.append(x)
        rows.append((first, row))
        # The end lies on diagonal n - m, which has been examined if its parity is that of the edits.
        if abs(n - m) <= edits and (edits - n + m) % 2 == 0 and furthest[n - m] == n:
            return rows
    return None


def _columns(n: int, m: int, forward: _Rows, backward: _Rows) -> tuple[list[int], list[int]]:
    """Return, for each column, the least and the greatest diagonal (lowest and highest point) on shortest scripts."""
    spans = []
    for (first, row), (first_back, row_back) in zip(forward, reversed(backward), strict=True):
        for i, high in enumerate(row):
            k = first + 2 * i
            back = (n - m - k - first_back) // 2  # seen from the end, this is diagonal n - m - k
            if 0 <= back < len(row_back) and n - row_back[back] <= high:
                spans.append((k, n - row_back[back], high + 1))
    spans.sort()
    least, most = [0] * (n + 1), [0] * (n + 1)
    for k, low, high in spans:
        most[low:high] = [k] * (high - low)
    for k, low, high in reversed(spans):
        least[low:high] = [k] * (high - low)
    return least, most
