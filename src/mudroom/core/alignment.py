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


def sure_partners(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Returns for each line of a the line of b that all shortest scripts match it with, or -1."""
    partners = [-1] * len(a)
    counts_a, counts_b = Counter(a), Counter(b)
    head, tail = common_ends(a, b)
    dropped_a, frequent_a = _dropped(a, counts_b, head, tail)
    dropped_b, frequent_b = _dropped(b, counts_a, head, tail)
    once = {line for line, count in counts_a.items() if count == 1 and counts_b[line] == 1}
    start = next((x + 1 for x in range(head - 1, -1, -1) if a[x] in once), 0)
    stop = next((x for x in range(tail, 0, -1) if a[-x] in once), 0)
    partners[:start] = range(start)
    for x in range(1, stop + 1):
        partners[-x] = len(b) - x
    xs = [x for x in range(start, len(a) - stop) if x not in dropped_a]
    ys = [y for y in range(start, len(b) - stop) if y not in dropped_b]
    left, right = [a[x] for x in xs], [b[y] for y in ys]
    for x, y in _sure(left, right, once):
        partners[xs[x]] = ys[y]
    if frequent_a or frequent_b:
        _widen(a, b, partners, frequent_a, frequent_b)
    return partners


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
    pairs: list[tuple[int, int]] = []
    x = y = 0
    work = _WORK
    for i, j in [*_anchors(a, b, once), (len(a), len(b))]:
        limit = min(_MAX_EDITS, int(work**0.5))
        found = _sure_exactly(a[x:i], b[y:j], limit)
        if found is None:
            work -= limit * limit
        else:
            pairs += ((x + n, y + m) for n, m in found)
        if i < len(a):
            pairs.append((i, j))
        x, y = i + 1, j + 1
    return pairs


def _anchors(a: list[int], b: list[int], once: set[int]) -> list[tuple[int, int]]:
    """Lines unique on both sides that no other such line crosses, amid long runs of equal lines."""
    places = {line: y for y, line in enumerate(b) if line in once}
    pairs = [(x, places[line]) for x, line in enumerate(a) if line in places]
    least, ahead = len(b), []
    for _, y in reversed(pairs):
        ahead.append(least)
        least = min(least, y)
    highest, anchors = -1, []
    for (x, y), after in zip(pairs, reversed(ahead), strict=True):
        if highest < y < after and _amid_run(a, b, x, y):
            anchors.append((x, y))
        highest = max(highest, y)
    return anchors


def _amid_run(a: list[int], b: list[int], x: int, y: int) -> bool:
    around = a[max(0, x - _RUN) : x + _RUN + 1]
    return len(around) == 2 * _RUN + 1 and around == b[max(0, y - _RUN) : y + _RUN + 1]


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
