"""Compare two byte strings line by line.

Rules:

1. The functions work on bytes only: no files, no clock, no randomness. Equal input gives equal output.
2. A line ends after b"\\n" and nowhere else. A carriage return or form feed is content, and a last line without newline
   differs from the same line with a newline.
3. The result is always correct and nearly always shortest. The work is bounded: a very different region may be reported
   as more changed than necessary, but never wrongly, and never after minutes.

How a region that differs at both ends is compared:

* Lines that the region's other side lacks cannot match and are set aside. After an ordinary edit, the remaining lines
  differ in a few places only.
* Myers' greedy search (An O(ND) Difference Algorithm, 1986) finds the shortest script, if it is short. The search comes
  first, because a single moved line that happens to be unique must not drag a thousand others along.
* If the script is long, lines that occur once on both sides are anchors: the longest chain of them in the same order is
  kept (patience diff), and the regions between them are compared anew.
* Without anchors, the search continues from the furthest point that it has reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Hashable, Iterator, Sequence

from mudroom.typing import NamedTuple

# The longest script searched for exactly. The search takes about half its square in steps.
_MAX_EDITS = 256
# With fewer affordable edits than this, the search would make no useful progress.
_MIN_EDITS = 8
# A region's first search may always look for this many edits, so that a few edits are found in any long text.
_FEW_EDITS = 32
# Equal lines in a row after which several are compared at once, and the most compared at once.
_LONG, _AT_ONCE = 32, 4096
# Most steps in one comparison: 20,000 random lines against 20,000 take a quarter of a second.
_WORK = 5_000_000
_WORK_PER_LINE = 32
# Lines beyond this number add only the steps to examine each twice: millions of tiny lines are compared if that is
# cheap (equal ends, unique lines, few edits), or are given up.
_MANY = 250_000
# Steps to examine a line in a region (is it shared? is it unique?).
_LOOK = 4

_BINARY_PROBE = 8000
_NO_NEWLINE = b"\\ No newline at end of file\n"

# Equal lines on the way to a point, the last run first: (runs before, old line, new line, length).
_Chain = tuple["_Chain", int, int, int] | None


class Block(NamedTuple):
    """Lines that differ, as half-open ranges. At least one equal line lies between two blocks."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Counts(NamedTuple):
    """How many lines were added and removed."""

    added: int
    removed: int


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines, split after each b"\\n"; joining them gives the data back."""
    # Not splitlines(): it would also split at a carriage return.
    *whole, last = data.split(b"\n")
    lines = [line + b"\n" for line in whole]
    return [*lines, last] if last else lines


def is_binary(data: bytes) -> bool:
    """Return whether the first 8000 bytes hold a NUL: git's heuristic."""
    return b"\0" in data[:_BINARY_PROBE]


def count_lines(old: bytes, new: bytes) -> Counts:
    """Return how many lines are added and removed."""
    blocks = diff_lines(split_lines(old), split_lines(new))
    added = sum(block.new_end - block.new_start for block in blocks)
    return Counts(added, removed=sum(block.old_end - block.old_start for block in blocks))


def diff_lines(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Block]:
    """Return the changed blocks in order; everything between them is equal. The items are lines, or words in a line."""
    old, new = list(old), list(new)
    head = _same(old, new)
    tail = _same(old[head:][::-1], new[head:][::-1])  # no line is counted at both ends
    # Equal lines get equal numbers: from here on, comparing two lines compares two small integers.
    ids: dict[Hashable, int] = {}
    a = [ids.setdefault(line, len(ids)) for line in old[head : len(old) - tail]]
    b = [ids.setdefault(line, len(ids)) for line in new[head : len(new) - tail]]
    blocks = []
    i = j = 0
    for run_i, run_j, length in _Comparison(a, b, len(old) + len(new)).equal_runs():
        if run_i > i or run_j > j:
            blocks.append(Block(head + i, head + run_i, head + j, head + run_j))
        i, j = run_i + length, run_j + length
    return _settled(old, new, blocks)


def _same(old: Sequence[Hashable], new: Sequence[Hashable], x: int = 0, y: int = 0) -> int:
    """Return how many lines are equal from ``x`` and ``y`` on. Many lines are compared at once, and fewer near a
    difference: in most texts nearly all lines are equal, and a loop over them would take longer than everything
    else."""
    at, step, most = 0, _LONG, min(len(old) - x, len(new) - y)
    while at < most:
        if old[x + at : x + at + min(step, most - at)] == new[y + at : y + at + min(step, most - at)]:
            at, step = at + step, min(step * 2, _AT_ONCE)
        elif step > 1:
            step = 1 if step < 8 else step // 8
        else:
            return at
    return most


def _settled(a: list[Hashable], b: list[Hashable], blocks: list[Block]) -> list[Block]:
    """Return the blocks with pure insertions and deletions moved down as far as possible.

    Inserting "b a" before "b" is the same as inserting "a b" after it. Always choosing the lower position lets a merge
    see that two sides made the same change, whatever else they changed around it.
    """
    settled = []
    # The next block stays where it is or moves down too; one equal line is always left above it.
    limits = [block.old_start - 1 for block in blocks[1:]] + [len(a)]
    for block, limit in zip(blocks, limits, strict=False):
        step = 0
        if block.old_start == block.old_end or block.new_start == block.new_end:
            lines, start, end = (b, *block[2:]) if block.old_start == block.old_end else (a, *block[:2])
            while block.old_end + step < limit and lines[start + step] == lines[end + step]:
                step += 1
        settled.append(Block(*(place + step for place in block)))
    return settled


class _Comparison:
    """A comparison's state: regions still to compare, equal runs found, work left."""

    def __init__(self, a: list[int], b: list[int], lines: int) -> None:
        """Initialise the comparison. ``lines``: both texts' line count, including equal ones at the ends."""
        self.a = a
        self.b = b
        self.regions = [Block(0, len(a), 0, len(b))]
        self.runs: list[tuple[int, int, int]] = []
        self.work = _WORK + _WORK_PER_LINE * min(lines, _MANY) + 2 * _LOOK * max(0, lines - _MANY)

    def equal_runs(self) -> list[tuple[int, int, int]]:
        """Return (old line, new line, length) in order; the last run is at the end of both sides."""
        while self.regions:  # an explicit stack: nesting may be deeper than Python's recursion limit
            self._compare(self._trimmed(self.regions.pop()))
        return sorted(self.runs)

    def _trimmed(self, region: Block) -> Block:
        """Return the region without equal lines at both ends."""
        a, b = self.a, self.b
        i, i_end, j, j_end = region
        while i < i_end and j < j_end and a[i] == b[j]:
            i, j = i + 1, j + 1
        while i < i_end and j < j_end and a[i_end - 1] == b[j_end - 1]:
            i_end, j_end = i_end - 1, j_end - 1
        self.runs.append((region.old_start, region.new_start, i - region.old_start))
        self.runs.append((i_end, j_end, region.old_end - i_end))
        return Block(i, i_end, j, j_end)

    def _compare(self, region: Block) -> None:
        i, i_end, j, j_end = region
        self.work -= _LOOK * (i_end - i + j_end - j)
        if i == i_end or j == j_end or self.work < 0:
            return
        old_lines, new_lines = set(self.a[i:i_end]), set(self.b[j:j_end])
        xs = [x for x in range(i, i_end) if self.a[x] in new_lines]
        ys = [y for y in range(j, j_end) if self.b[y] in old_lines]
        a, b = [self.a[x] for x in xs], [self.b[y] for y in ys]
        x = y = 0
        while x < len(a) and y < len(b):
            affordable = self.work // (2 * (len(a) - x + len(b) - y))
            if x or y:
                if affordable < _MIN_EDITS:
                    return
            else:
                affordable = max(affordable, _FEW_EDITS)
            edits, x_end, y_end, chain = _search(a, b, x, y, min(_MAX_EDITS, affordable))
            # Each edit opens one diagonal, and none was followed further than the furthest point.
            self.work -= edits * (x_end - x + y_end - y)
            if (x_end < len(a) or y_end < len(b)) and x == y == 0 and self._split_at_anchors(region):
                return
            x, y = x_end, y_end
            while chain:
                chain, run_x, run_y, length = chain
                self.runs.extend((xs[run_x + n], ys[run_y + n], 1) for n in range(length))

    def _split_at_anchors(self, region: Block) -> bool:
        i, i_end, j, j_end = region
        anchors = _rising(_once(self.a, i, i_end), _once(self.b, j, j_end))
        for x, y in anchors:
            self.runs.append((x, y, 1))
            self.regions.append(Block(i, x, j, y))
            i, j = x + 1, y + 1
        if anchors:
            self.regions.append(Block(i, i_end, j, j_end))
        return bool(anchors)


def _search(a: list[int], b: list[int], x0: int, y0: int, limit: int) -> tuple[int, int, int, _Chain]:
    """Find the shortest script from (x0, y0) to the end, or the furthest point within the limit.

    Return the number of edits, the point, and the equal lines on the way. furthest[k] is the greatest x reached on
    diagonal k, where x - y == x0 - y0 + k (a negative k is a negative index). A diagonal may run one step over the
    edge: such a point is on no shortest path and gains no equal lines.
    """
    n, m = len(a), len(b)
    furthest = [x0] * (2 * limit + 3)
    chains: list[_Chain] = [None] * (2 * limit + 3)
    for edits in range(limit + 1):
        # The diagonals newly in reach inside the rectangle.
        low, high = edits - 2 * max(0, edits - m + y0), edits - 2 * max(0, edits - n + x0)
        diagonals = range(-low, high + 1, 2)
        for k in diagonals:
            if k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1]):
                x, chain = furthest[k + 1], chains[k + 1]
            else:
                x, chain = furthest[k - 1] + 1, chains[k - 1]
            start, y = x, x - k - x0 + y0
            end = min(n, m + x - y, x + _LONG)
            while x < end and a[x] == b[y]:
                x, y = x + 1, y + 1
            if x == start + _LONG:
                length = _same(a, b, x, y)
                x, y = x + length, y + length
            if x > start:
                chain = (chain, start, y - x + start, x - start)
            furthest[k], chains[k] = x, chain
            if x >= n and y >= m:
                return edits, x, y, chain
    ends = [(furthest[k], furthest[k] - k - x0 + y0, k) for k in diagonals]
    x, y, k = max((end for end in ends if end[0] <= n and end[1] <= m), key=lambda end: end[0] + end[1])
    return limit, x, y, chains[k]


def _once(ids: list[int], start: int, end: int) -> dict[int, int]:
    """Return each line's index in the range, or -1 if the line occurs more than once."""
    places: dict[int, int] = {}
    for i in range(start, end):
        line = ids[i]
        places[line] = -1 if line in places else i
    return places


def _rising(old_places: dict[int, int], new_places: dict[int, int]) -> list[tuple[int, int]]:
    """Return the longest chain of lines, unique on both sides, that have the same order on both sides."""
    piles: list[int] = []  # for each chain length, the least end; always rising
    chains: list[_Chain] = []
    for line, x in old_places.items():  # in order of x: a dict keeps it
        y = new_places.get(line, -1)
        if x < 0 or y < 0:
            continue
        high = len(piles)
        low = high if piles and piles[-1] < y else 0  # usually the greatest
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if piles[middle] < y else (low, middle)
        piles[low : low + 1] = [y]
        chains[low : low + 1] = [(chains[low - 1] if low else None, x, y, 1)]
    rising, chain = [], chains[-1] if chains else None
    while chain:
        chain, x, y, _ = chain
        rising.append((x, y))
    return rising[::-1]


def unified_diff(old: bytes, new: bytes, *, old_label: bytes, new_label: bytes, context: int = 3) -> Iterator[bytes]:
    """Yield a unified diff's lines, as patch(1) and git apply accept them; none if there is no change.

    The labels are written unchanged: the caller quotes unusual paths.
    """
    before, after = split_lines(old), split_lines(new)
    if blocks := diff_lines(before, after):
        yield b"--- " + old_label + b"\n"
        yield b"+++ " + new_label + b"\n"
    for group in grouped(blocks, context):
        yield from _hunk(before, after, blocks[group.start : group.stop], context)


def grouped(blocks: Sequence[Block], context: int, cuts: Container[int] = ()) -> list[range]:
    """Return the ranges of blocks that share a hunk: those whose contexts would touch. ``cuts``: blocks that begin a
    hunk even then."""
    starts = [
        number
        for number, block in enumerate(blocks)
        if not number or number in cuts or block.old_start - blocks[number - 1].old_end > 2 * context
    ]
    return [range(*pair) for pair in itertools.pairwise([*starts, len(blocks)])]


def _hunk(old: list[bytes], new: list[bytes], group: list[Block], context: int) -> Iterator[bytes]:
    first, last = group[0], group[-1]
    lead = min(context, first.old_start)
    tail = min(context, len(old) - last.old_end)
    at = first.old_start - lead
    old_range, new_range = (at, last.old_end + tail), (first.new_start - lead, last.new_end + tail)
    yield b"@@ -%b +%b @@\n" % (_range(*old_range), _range(*new_range))
    for block in group:
        yield from _signed(b" ", old[at : block.old_start])
        yield from _signed(b"-", old[block.old_start : block.old_end])
        yield from _signed(b"+", new[block.new_start : block.new_end])
        at = block.old_end
    yield from _signed(b" ", old[at : at + tail])


def _range(start: int, end: int) -> bytes:
    # Lines count from 1; an empty range names the line before it, which may be line 0.
    return b"%d" % end if end == start + 1 else b"%d,%d" % (start + (end > start), end - start)


def _signed(sign: bytes, lines: list[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield sign + line.removesuffix(b"\n") + b"\n"
        if not line.endswith(b"\n"):
            yield _NO_NEWLINE
