"""Tells which lines of two texts belong together beyond doubt: in every shortest edit script, not just in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_MAX_EDITS = 512
_WORK = 1_500_000
_WINDOW = 100
_RUN = 16


class _Part(NamedTuple):
    start: int
    end: int
    new_start: int
    new_end: int


class Alignment(NamedTuple):
    partners: list[int]
    doubtful: set[int]


def align(a: Sequence[int], b: Sequence[int]) -> Alignment:
    """Returns for each line of a the line of b that all shortest scripts match it with, or -1."""
    partners = [-1] * len(a)
    counts_a, counts_b = Counter(a), Counter(b)
    head, tail = common_ends(a, b)
    dropped_a, frequent_a = _dropped(a, counts_b, head, tail)
    dropped_b, frequent_b = _dropped(b, counts_a, head, tail)
    once = {line for line, count in counts_a.items() if count == 1 and counts_b[line] == 1}
    xs = [x for x in range(len(a)) if x not in dropped_a]
    ys = [y for y in range(len(b)) if y not in dropped_b]
    left, right = [a[x] for x in xs], [b[y] for y in ys]
    head, tail = common_ends(left, right)
    trivial = head + tail >= min(len(left), len(right))
    start = next((x + 1 for x in range(head - 1, -1, -1) if left[x] in once), 0)
    stop = next((x for x in range(tail, 0, -1) if left[-x] in once), 0)
    for x in range(start):
        partners[xs[x]] = ys[x]
    for x in range(1, stop + 1):
        partners[xs[-x]] = ys[-x]
    found = _sure(left[start:len(left)-stop], right[start:len(right)-stop], once)
    hopeless = found is None and not trivial
    for x, y in found or ():
        partners[xs[start + x]] = ys[start + y]
    if frequent_a or frequent_b:
        _widen(a, b, partners, frequent_a, frequent_b)
    doubtful = set()
    for gap in list(gaps(partners, len(b))):
        if gap.start == gap.end or gap.new_start == gap.new_end:
            continue
        gxs = [x for x in range(gap.start, gap.end) if x not in dropped_a]
        gys = [y for y in range(gap.new_start, gap.new_end) if y not in dropped_b]
        STAT["gaps"] += 1
        if REFINE and not hopeless:
            found = _alignments([a[x] for x in gxs], [b[y] for y in gys])
        else:
            found = None
        if found is None:
            doubtful.update(range(gap.start, gap.end))
            STAT["toomany"] += 1
            continue
        here, there = a[gap.start:gap.end], b[gap.new_start:gap.new_end]
        canon = {canonical(here, there, [gxs[x] - gap.start for x, _ in f], [gys[y] - gap.new_start for _, y in f]) for f in found}
        STAT["one"] += len(canon) == 1
        known = {}
        for c in canon:
            for x, y in c:
                if known.setdefault(x, y) != y:
                    doubtful.add(gap.start + x)
        sure = set.intersection(*map(set, canon))
        for x, y in sure:
            partners[gap.start + x] = gap.new_start + y
    return Alignment(partners, doubtful)


REFINE = True
STAT = Counter()
CAP = 300


def _alignments(a: list[int], b: list[int]):
    n, m = len(a), len(b)
    if n * m > 10000:
        return None
    table = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            table[i][j] = table[i + 1][j + 1] + 1 if a[i] == b[j] else max(table[i + 1][j], table[i][j + 1])
    found = []
    todo = [(0, 0, ())]
    steps = 0
    while todo:
        i, j, way = todo.pop()
        left = table[i][j]
        if not left:
            found.append(way)
            if len(found) > CAP:
                return None
            continue
        for x in range(i, n):
            if table[x][j] < left:
                break
            for y in range(j, m):
                if table[x][y] < left:
                    break
                if a[x] == b[y] and table[x + 1][y + 1] == left - 1:
                    todo.append((x + 1, y + 1, (*way, (x, y))))
    return found


def common_ends(a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
    shorter = min(len(a), len(b))
    head = 0
    while head < shorter and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < shorter - head and a[-tail - 1] == b[-tail - 1]:
        tail += 1
    return head, tail


def _root(count: int) -> int:
    """About the square root, as git takes it."""
    return 1 << (count.bit_length() + 1) // 2


def _dropped(a: Sequence[int], there: Counter[int], head: int, tail: int) -> tuple[set[int], set[int]]:
    limit = min(_root(len(a)), 1024)
    kinds = []
    for x in range(head, len(a) - tail):
        count = there[a[x]]
        kinds.append(0 if not count else 2 if count >= limit else 1)
    dropped, frequent = set(), set()
    for i, kind in enumerate(kinds):
        if kind == 0:
            dropped.add(head + i)
        elif kind == 2 and _is_lost(kinds, i):
            dropped.add(head + i)
            frequent.add(head + i)
    return dropped, frequent


def _is_lost(kinds: list[int], i: int) -> bool:
    unmatched, crowd = 0, 0
    for around in (kinds[max(0, i - _WINDOW) : i][::-1], kinds[i + 1 : i + 1 + _WINDOW]):
        run = next((n for n, kind in enumerate(around) if kind == 1), len(around))
        none = around[:run].count(0)
        if not none:
            return False
        unmatched += none
        crowd += run - none + 1
    return crowd * 4 < crowd + unmatched


def _widen(
    a: Sequence[int], b: Sequence[int], partners: list[int], frequent_a: set[int], frequent_b: set[int]
) -> None:
    """Takes the sure lines beside a region with dropped frequent lines out, as long as they occur in it."""
    for gap in list(gaps(partners, len(b))):
        start, end, new_start, new_end = gap
        if not any(x in frequent_a for x in range(start, end)) and not any(
            y in frequent_b for y in range(new_start, new_end)
        ):
            continue
        inside = set(a[start:end]) | set(b[new_start:new_end])
        for x in range(start - 1, -1, -1):
            if partners[x] >= 0 and a[x] not in inside:
                break
            partners[x] = -1
        for x in range(end, len(a)):
            if partners[x] >= 0 and a[x] not in inside:
                break
            partners[x] = -1


def gaps(partners: Sequence[int], new_length: int) -> Iterator[_Part]:
    """Yields the regions between sure lines, where either side has lines that are not sure."""
    x = y = 0
    for i, j in enumerate(partners):
        if j >= 0:
            if i > x or j > y:
                yield _Part(x, i, y, j)
            x, y = i + 1, j + 1
    if x < len(partners) or y < new_length:
        yield _Part(x, len(partners), y, new_length)


def _sure(a: list[int], b: list[int], once: set[int]) -> list[tuple[int, int]]:
    found = _sure_exactly(a, b, _MAX_EDITS)
    if found is not None:
        return found
    STAT["hopeless"] += 1
    return None


def _sure_exactly(a: list[int], b: list[int], limit: int) -> list[tuple[int, int]] | None:
    forward = _reaches(a, b, limit)
    if forward is None:
        return None
    lowest, highest = _columns(a, b, forward)
    return [(x, x - k) for x, (k, other) in enumerate(zip(lowest, highest[1:], strict=False)) if k == other]


def _columns(a: list[int], b: list[int], forward: list[tuple[int, list[int]]]) -> tuple[list[int], list[int]]:
    n, m = len(a), len(b)
    spans = sorted(_spans(a, b, forward))
    lowest, highest = [0] * (n + 1), [0] * (n + 1)
    for k, low, high in spans:
        highest[low : high + 1] = [k] * (high - low + 1)
    for k, low, high in reversed(spans):
        lowest[low : high + 1] = [k] * (high - low + 1)
    return lowest, highest


def _spans(a: list[int], b: list[int], forward: list[tuple[int, list[int]]]) -> Iterator[tuple[int, int, int]]:
    n, m = len(a), len(b)
    backward = _reaches(a[::-1], b[::-1], len(forward) - 1)
    assert backward is not None
    for (first, furthest), (first_back, furthest_back) in zip(forward, reversed(backward), strict=True):
        for i, high in enumerate(furthest):
            k = first + 2 * i
            back = (n - m - k - first_back) // 2
            if 0 <= back < len(furthest_back):
                low = n - furthest_back[back]
                if low <= high:
                    yield k, low, high


def _reaches(a: list[int], b: list[int], limit: int) -> list[tuple[int, list[int]]] | None:
    n, m = len(a), len(b)
    furthest = [0] * (2 * limit + 3)
    rows = []
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
        if first <= n - m <= last and (n - m - first) % 2 == 0 and furthest[n - m] >= n:
            return rows
    return None


def canonical(a: Sequence[int], b: Sequence[int], xs: list[int], ys: list[int]) -> tuple[tuple[int, int], ...]:
    """Slides the blocks of an alignment to where git leaves them."""
    xs, ys = list(xs), list(ys)
    _settle(a, xs, ys, len(a), len(b))
    _settle(b, ys, xs, len(b), len(a))
    return tuple(zip(xs, ys))


def _settle(a: Sequence[int], xs: list[int], ys: list[int], n: int, m: int) -> None:
    """xs, ys: the matched lines. Moves the unmatched lines of a; gap g lies before matched line g."""
    xs.insert(0, -1); xs.append(n)
    ys.insert(0, -1); ys.append(m)
    # gap g: between xs[g] and xs[g+1]
    g = 0
    last = len(xs) - 2
    while g <= last:
        if xs[g + 1] - xs[g] > 1:
            while True:
                size = xs[g + 1] - xs[g]
                while g > 0 and a[xs[g]] == a[xs[g + 1] - 1]:
                    xs[g] = xs[g + 1] - 1
                    g -= 1
                first, beside = g, g if ys[g + 1] - ys[g] > 1 else -1
                while g < last and a[xs[g + 1]] == a[xs[g] + 1]:
                    xs[g + 1] = xs[g] + 1
                    g += 1
                    if ys[g + 1] - ys[g] > 1:
                        beside = g
                if xs[g + 1] - xs[g] == size:
                    break
            if g > first and beside >= 0:
                while g > beside:
                    xs[g] = xs[g + 1] - 1
                    g -= 1
        g += 1
    del xs[0], ys[0], xs[-1], ys[-1]
