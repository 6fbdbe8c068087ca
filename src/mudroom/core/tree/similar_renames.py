"""Files that were moved and changed in one go, told by how alike they are: a view of a deleted and an added file.

What a change is stays as it is: they are two, chosen and applied each by itself. (A file that was only moved has the
same content and is one ``renamed`` change: ``rename.py``.)

1. As git does it (diffcore-rename.c): of those with the same name, pairs that are alike by three quarters come first,
   then the most alike of all the others, by half or more; each file once.
2. Two files that have a name for themselves, among all that went and among all that came, are each other's namesakes:
   if they are alike by three quarters, nothing else has to be looked at for them.
3. All other looking is bounded. Only so many pairs are looked at, those that promise most before the others, and only
   so many files are read. What was not looked at is not paired (git's diff.renameLimit; there it is all or nothing).
   It is the same whoever asks about which file first.
4. Never paired: what is empty or large, what is no file; what has to be named to be applied; what its reader hides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from mudroom.core.tree.change import Change
from mudroom.core.tree.path import name
from mudroom.core.tree.review_tags import LARGE, is_of_repository
from mudroom.core.tree.secret import ELSEWHERE
from mudroom.core.tree.similarity import FULL, LEAST, Spans, can_be_similar, percent, score, spans

SAME_NAME = (FULL + LEAST) // 2
"""The score from which a file of the same name is preferred to one that is more alike (GIT_BASENAME_FACTOR)."""
FILES, EACH, PAIRS = 500, 100, 10_000
"""Deleted files that are looked at, or added ones if those are fewer; others that one of them may be compared with; and
pairs of them all."""
READ, BYTES = 1_500, 16 << 20
"""Files that are read, and bytes of them together."""
STEPS = 1_000_000
"""Spans that are looked up: these take an eighth of a second."""
HELD = 1_000_000
"""Different spans of all that was read: these take 80 MB. Lines of four bytes take twenty times what they are."""

Read = Callable[[Change], bytes | None]
"""The original content of what was deleted, the staged one of what was added; None: it cannot be told."""
_Pair = tuple[Change, Change]


class Move(NamedTuple):
    old: bytes
    new: bytes
    score: int

    @property
    def percent(self) -> int:
        return percent(self.score)

    def other(self, path: bytes) -> bytes:
        return self.old if path == self.new else self.new


class Moves:
    """Those of one changeset. What was found out once is kept; not what was read."""

    def __init__(self, changes: Iterable[Change], hides: Callable[[bytes], bool]) -> None:
        """``hides``: whether nobody reads what is at a path."""
        files = [change for change in changes if _may_have_moved(change)]
        if len({change.verb for change in files}) < 2:
            files = []
        files = [change for change in files if not hides(change.path)]
        self._gone = [change for change in files if change.verb == "deleted"]
        self._come = [change for change in files if change.verb == "added"]
        self._namesakes = {one.path: pair for pair in _namesakes(self._gone, self._come) for one in pair}
        self._scores: dict[bytes, int] = {}
        """Of namesakes, by the old path."""
        self._others: Mapping[bytes, Move] | None = None
        """Those that are no namesakes, by both their paths."""

    def of(self, path: bytes, read: Read) -> Move | None:
        """The one that a path is an end of."""
        if not any(change.path == path for change in (*self._gone, *self._come)):
            return None
        return self._by_name(path, read) or self._search(read).get(path)

    def all(self, read: Read) -> tuple[Move, ...]:
        """In the order of the new paths."""
        by_name = [self._by_name(path, read) for path in self._namesakes]
        found = {move for move in (*by_name, *self._search(read).values()) if move is not None}
        return tuple(sorted(found, key=lambda move: move.new))

    def _by_name(self, path: bytes, read: Read) -> Move | None:
        if path not in self._namesakes:
            return None
        old, new = self._namesakes[path]
        if old.path not in self._scores:
            self._scores[old.path] = _Looking(read).score(old, new)
        found = self._scores[old.path]
        return Move(old.path, new.path, found) if found >= SAME_NAME else None

    def _search(self, read: Read) -> Mapping[bytes, Move]:
        if self._others is not None:
            return self._others
        looking = _Looking(read)

        def is_free(change: Change) -> bool:
            pair = self._namesakes.get(change.path)
            return pair is None or (looking.affords(pair) and self._by_name(change.path, read) is None)

        apart = [[one for one in some if one.path not in self._namesakes] for some in (self._gone, self._come)]
        found = _best(looking.scores(_of_one_name(*apart), is_free), SAME_NAME)
        taken = {path for move in found for path in (move.old, move.new)}
        gone, come = ([one for one in some if one.path not in taken] for some in (self._gone, self._come))
        found += _best(looking.scores(_near(gone, come), is_free), LEAST)
        self._others = {path: move for move in found for path in (move.old, move.new)}
        return self._others


def _may_have_moved(change: Change) -> bool:
    if change.verb not in ("deleted", "added") or change.moved_to or not change.original_known:
        return False
    entry = change.entry
    if entry.kind != "file" or not 0 < entry.size <= LARGE:
        return False
    return "protected" not in change.flags and not is_of_repository(change)


def _namesakes(gone: list[Change], come: list[Change]) -> Iterator[_Pair]:
    """Pairs of which each has a name that no other file has on its side."""
    old, new = _by_name(gone), _by_name(come)
    for one in old.keys() & new.keys():
        (before, *more), (after, *others) = old[one], new[one]
        if not more and not others and can_be_similar(before.entry.size, after.entry.size, SAME_NAME):
            yield before, after


def _by_name(changes: list[Change]) -> dict[bytes, list[Change]]:
    found: dict[bytes, list[Change]] = {}
    for change in changes:
        found.setdefault(name(change.path), []).append(change)
    return found


def _best(scores: dict[tuple[bytes, bytes], int], least: int) -> list[Move]:
    """Of each file one, the most alike first; of those the ones that have the same name."""
    found: list[Move] = []
    taken: set[bytes] = set()
    moves = (Move(old, new, one) for (old, new), one in scores.items() if one >= least)
    for move in sorted(moves, key=lambda move: (-move.score, name(move.old) != name(move.new), move.old, move.new)):
        if move.old not in taken and move.new not in taken:  # no path is both: it is one change
            taken.update((move.old, move.new))
            found.append(move)
    return found


# --- what is compared ---


class _Sized:
    """Files in the order of their sizes."""

    def __init__(self) -> None:
        self._files: list[Change] = []
        self._sizes: list[int] = []

    def add(self, change: Change) -> None:
        """They come in that order."""
        self._files.append(change)
        self._sizes.append(change.entry.size)

    def near(self, size: int) -> Iterator[Change]:
        """Those that can be similar by their size, the nearest first."""
        above = bisect_left(self._sizes, size)
        below = above - 1
        while True:
            up, down = self._away(above, size), self._away(below, size)
            if up is None and down is None:
                return
            if down is None or (up is not None and up <= down):
                yield self._files[above]
                above += 1
            else:
                yield self._files[below]
                below -= 1

    def _away(self, at: int, size: int) -> int | None:
        """None: there is none, or it cannot be similar, nor those behind it."""
        if not 0 <= at < len(self._sizes) or not can_be_similar(self._sizes[at], size):
            return None
        return abs(self._sizes[at] - size)


def _sized(changes: Iterable[Change], key: Callable[[Change], object]) -> dict[object, _Sized]:
    found: dict[object, _Sized] = {}
    for change in sorted(changes, key=lambda change: (change.entry.size, change.path)):
        found.setdefault(key(change), _Sized()).add(change)
    return found


def _name(change: Change) -> bytes:
    return name(change.path)


def _of_one_name(gone: list[Change], come: list[Change]) -> Iterator[_Pair]:
    """Files of the same name, the nearest by size first."""
    return _ordered(gone, come, [_name])


def _near(gone: list[Change], come: list[Change]) -> Iterator[_Pair]:
    """Any, those that promise most first: other suffixes after the same, packages and builds after people's own."""
    return _ordered(gone, come, [_name, _kind, _is_elsewhere, _any])


def _is_elsewhere(change: Change) -> bool:
    return not ELSEWHERE.isdisjoint(change.path.split(b"/"))


def _any(_change: Change) -> None:
    return None


def _kind(change: Change) -> tuple[bool, bytes]:
    return _is_elsewhere(change), name(change.path).rpartition(b".")[2]


def _ordered(gone: list[Change], come: list[Change], keys: list[Callable[[Change], object]]) -> Iterator[_Pair]:
    """Each file of the fewer ones with those of the others that have a key in common with it: the nearest of all files,
    then the second of all."""
    fewer, more = (gone, come) if len(gone) <= len(come) else (come, gone)
    tables = [(key, _sized(more, key)) for key in keys]
    pairs: list[tuple[int, int, Change, Change]] = []
    looked_at = sorted(fewer, key=_is_elsewhere)[:FILES]
    each = min(EACH, PAIRS // max(1, len(looked_at)))
    for one in looked_at:
        seen: set[bytes] = set()
        for rank, (key, table) in enumerate(tables):
            same = table.get(key(one))
            near = same.near(one.entry.size) if same is not None else iter(())
            for place, other in enumerate(islice(near, each - len(seen))):
                if other.path not in seen:
                    seen.add(other.path)
                    pairs.append((rank, place, one, other))
    pairs.sort(key=lambda pair: pair[:2])
    for _rank, _place, one, other in pairs:
        yield (one, other) if one.verb == "deleted" else (other, one)


class _Looking:
    """What is read and compared, and how much of that there may still be."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._files, self._bytes, self._steps, self._room = READ, BYTES, STEPS, HELD
        self._affords: dict[bytes, bool] = {}
        self._spans: dict[bytes, Spans | None] = {}
        self._scores: dict[tuple[bytes, bytes], int] = {}

    def scores(self, pairs: Iterable[_Pair], is_free: Callable[[Change], bool]) -> dict[tuple[bytes, bytes], int]:
        """Of those pairs that can be looked at, and of which both are still to be had, by their paths."""
        found: dict[tuple[bytes, bytes], int] = {}
        for old, new in pairs:
            if self._steps <= 0:
                break
            paths = old.path, new.path
            if paths not in self._scores:
                if not (is_free(old) and is_free(new) and self.affords((old, new))):
                    continue
                self._scores[paths] = self.score(old, new)
            found[paths] = self._scores[paths]
        return found

    def affords(self, pair: _Pair) -> bool:
        """Whether both may be read; what may be is taken off, once, whether it has been read before or not."""
        old, new = map(self._affords_one, pair)
        return old and new

    def _affords_one(self, change: Change) -> bool:
        if change.path not in self._affords:
            size = change.entry.size
            self._affords[change.path] = can = self._files > 0 and size <= self._bytes
            if can:
                self._files -= 1
                self._bytes -= size
        return self._affords[change.path]

    def score(self, old: Change, new: Change) -> int:
        before = self._spans_of(old)
        after = self._spans_of(new) if before is not None else None
        if before is None or after is None or not can_be_similar(before.size, after.size):
            return 0
        self._steps -= 1 + min(len(before.counts), len(after.counts))
        return score(before, after)

    def _spans_of(self, change: Change) -> Spans | None:
        if change.path not in self._spans:
            data = self._read(change) if self._room > 0 else None
            self._spans[change.path] = found = spans(data) if data else None
            self._room -= len(found.counts) if found is not None else 0
        return self._spans[change.path]
