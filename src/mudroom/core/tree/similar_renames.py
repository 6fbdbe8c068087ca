"""Detection of files that were renamed and modified: pairs of a deleted and an added file with similar content.

A pair leaves its two changes as they are: each is selected and applied separately. (A file that was only moved has the
same content and is one ``renamed`` change: ``rename.py``.)

1. As in git (diffcore-rename.c): pairs with the same file name and at least three quarters similarity come first, then
   the most similar of all other pairs with at least one half. Each file is in one pair at most.
2. A deleted and an added file are namesakes if each has a file name that is unique on its side. Namesakes with at least
   three quarters similarity are paired without comparing other files.
3. All other work is limited. A limited number of pairs is compared, the most promising first, and a limited number of
   files is read. Pairs that were not compared are not reported (git's diff.renameLimit is all or nothing). The result
   does not depend on the file that is asked for first.
4. Never paired: empty files, large files, entries that are not files, changes that must be named to be applied, and
   files that the reader hides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from mudroom.core.text.linediff import is_binary, split_lines
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import name
from mudroom.core.tree.review_tags import LARGE, is_of_repository
from mudroom.core.tree.secret import ELSEWHERE
from mudroom.typing import NamedTuple

FULL = 60_000
"""Score for identical contents: MAX_SCORE in diffcore.h."""
LEAST = FULL // 2
"""Lowest score for a rename: git's DEFAULT_RENAME_SCORE."""
_SPAN = 64


class Spans(NamedTuple):
    size: int
    """Content length in bytes."""
    counts: Counter[bytes]


def spans(data: bytes) -> Spans:
    lines = split_lines(data if is_binary(data) else data.replace(b"\r\n", b"\n"))
    counts = Counter(line for line in lines if len(line) <= _SPAN)
    for line in lines:
        if len(line) > _SPAN:
            counts.update(line[start : start + _SPAN] for start in range(0, len(line), _SPAN))
    return Spans(len(data), counts)


def can_be_similar(old: int, new: int, least: int = LEAST) -> bool:
    """Return whether contents with these sizes in bytes can reach the score ``least``. Empty contents cannot."""
    return FULL * min(old, new) >= least * max(old, new) > 0


def score(old: Spans, new: Spans) -> int:
    """Return the similarity, from 0 to FULL."""
    few, many = sorted((old.counts, new.counts), key=len)
    copied = sum(min(count, many[span]) * len(span) for span, count in few.items() if span in many)
    return copied * FULL // max(old.size, new.size, 1)


def percent(score: int) -> int:
    """Return the score in percent, rounded down as in git."""
    return score * 100 // FULL


SAME_NAME = (FULL + LEAST) // 2
"""Lowest score at which a file with the same name is preferred to a more similar file (GIT_BASENAME_FACTOR)."""
FILES, EACH, PAIRS = 500, 100, 10_000
"""Limits: files on the smaller side (deleted or added) that are compared; candidates for each; pairs in total."""
READ, BYTES = 1_500, 16 << 20
"""Limits: files that are read, and their total bytes."""
STEPS = 1_000_000
"""Limit: spans that are looked up, about an eighth of a second."""
HELD = 1_000_000
"""Limit: different spans in memory, about 80 MB. Four-byte lines take twenty times their size."""

Read = Callable[[Change], bytes | None]
"""Returns a deleted file's original content, or an added file's staged content; None if it is not available."""
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
    """A changeset's similar renames. Results are cached; file contents are not."""

    def __init__(self, changes: Iterable[Change], hides: Callable[[bytes], bool]) -> None:
        """Initialise the search. ``hides`` tells whether a path's content must not be read."""
        files = [change for change in changes if _may_have_moved(change)]
        if len({change.verb for change in files}) < 2:
            files = []
        files = [change for change in files if not hides(change.path)]
        self._deleted = [change for change in files if change.verb == "deleted"]
        self._added = [change for change in files if change.verb == "added"]
        self._namesakes = {change.path: pair for pair in _namesakes(self._deleted, self._added) for change in pair}
        self._scores: dict[bytes, int] = {}
        """Namesakes' scores, by the old path."""
        self._others: Mapping[bytes, Move] | None = None
        """Pairs that are not namesakes, by both paths; None until the search has run."""

    def of(self, path: bytes, read: Read) -> Move | None:
        """Return the pair that contains ``path``, or None."""
        if not any(change.path == path for change in (*self._deleted, *self._added)):
            return None
        return self._by_name(path, read) or self._search(read).get(path)

    def all(self, read: Read) -> tuple[Move, ...]:
        """Return all pairs, sorted by the new path."""
        by_name = [self._by_name(path, read) for path in self._namesakes]
        moves = {move for move in (*by_name, *self._search(read).values()) if move is not None}
        return tuple(sorted(moves, key=lambda move: move.new))

    def _by_name(self, path: bytes, read: Read) -> Move | None:
        if path not in self._namesakes:
            return None
        old, new = self._namesakes[path]
        if old.path not in self._scores:
            self._scores[old.path] = _Comparison(read).score(old, new)
        similarity = self._scores[old.path]
        return Move(old.path, new.path, similarity) if similarity >= SAME_NAME else None

    def _search(self, read: Read) -> Mapping[bytes, Move]:
        if self._others is not None:
            return self._others
        comparison = _Comparison(read)

        def is_free(change: Change) -> bool:
            pair = self._namesakes.get(change.path)
            return pair is None or (comparison.affords(pair) and self._by_name(change.path, read) is None)

        without_namesakes = [
            [change for change in side if change.path not in self._namesakes] for side in (self._deleted, self._added)
        ]
        moves = _best(comparison.scores(_of_one_name(*without_namesakes), is_free), SAME_NAME)
        taken = {path for move in moves for path in (move.old, move.new)}
        deleted, added = (
            [change for change in side if change.path not in taken] for side in (self._deleted, self._added)
        )
        moves += _best(comparison.scores(_near(deleted, added), is_free), LEAST)
        self._others = {path: move for move in moves for path in (move.old, move.new)}
        return self._others


def _may_have_moved(change: Change) -> bool:
    if change.verb not in ("deleted", "added") or change.moved_to or not change.original_known:
        return False
    entry = change.entry
    if entry.kind != "file" or not 0 < entry.size <= LARGE:
        return False
    return "protected" not in change.flags and not is_of_repository(change)


def _namesakes(deleted: list[Change], added: list[Change]) -> Iterator[_Pair]:
    """Yield the pairs in which each file's name is unique on its side."""
    old, new = _by_name(deleted), _by_name(added)
    for file_name in old.keys() & new.keys():
        (before, *more_old), (after, *more_new) = old[file_name], new[file_name]
        if not more_old and not more_new and can_be_similar(before.entry.size, after.entry.size, SAME_NAME):
            yield before, after


def _by_name(changes: list[Change]) -> dict[bytes, list[Change]]:
    groups: dict[bytes, list[Change]] = {}
    for change in changes:
        groups.setdefault(name(change.path), []).append(change)
    return groups


def _best(scores: dict[tuple[bytes, bytes], int], least: int) -> list[Move]:
    """Return the best pairs, each file at most once: the highest score first, then pairs with the same file name."""
    best: list[Move] = []
    taken: set[bytes] = set()
    moves = (Move(old, new, points) for (old, new), points in scores.items() if points >= least)
    for move in sorted(moves, key=lambda move: (-move.score, name(move.old) != name(move.new), move.old, move.new)):
        if move.old not in taken and move.new not in taken:  # a path is never on both sides: it has one change
            taken.update((move.old, move.new))
            best.append(move)
    return best


# --- candidates ---


class _Sized:
    """Files in ascending order of size."""

    def __init__(self) -> None:
        self._files: list[Change] = []
        self._sizes: list[int] = []

    def add(self, change: Change) -> None:
        """Append a file. Callers add files in ascending order of size."""
        self._files.append(change)
        self._sizes.append(change.entry.size)

    def near(self, size: int) -> Iterator[Change]:
        """Yield the files that are close enough in size to be similar, the closest first."""
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
        """Return the difference in size, or None if no candidate is left. Sizes are sorted, so candidates further away
        cannot match either."""
        if not 0 <= at < len(self._sizes) or not can_be_similar(self._sizes[at], size):
            return None
        return abs(self._sizes[at] - size)


def _sized(changes: Iterable[Change], key: Callable[[Change], object]) -> dict[object, _Sized]:
    tables: dict[object, _Sized] = {}
    for change in sorted(changes, key=lambda change: (change.entry.size, change.path)):
        tables.setdefault(key(change), _Sized()).add(change)
    return tables


def _name(change: Change) -> bytes:
    return name(change.path)


def _of_one_name(deleted: list[Change], added: list[Change]) -> Iterator[_Pair]:
    """Yield pairs with the same file name, the closest in size first."""
    return _ordered(deleted, added, [_name])


def _near(deleted: list[Change], added: list[Change]) -> Iterator[_Pair]:
    """Yield all pairs, the most promising first: the same suffix before other suffixes, the user's own files before
    packages and builds."""
    return _ordered(deleted, added, [_name, _kind, _is_elsewhere, _any])


def _is_elsewhere(change: Change) -> bool:
    return not ELSEWHERE.isdisjoint(change.path.split(b"/"))


def _any(_change: Change) -> None:
    return None


def _kind(change: Change) -> tuple[bool, bytes]:
    return _is_elsewhere(change), name(change.path).rpartition(b".")[2]


def _ordered(deleted: list[Change], added: list[Change], keys: list[Callable[[Change], object]]) -> Iterator[_Pair]:
    """Yield pairs of files that have a key in common. Each file on the smaller side gets its closest candidate first,
    then every file its second."""
    fewer, more = (deleted, added) if len(deleted) <= len(added) else (added, deleted)
    tables = [(key, _sized(more, key)) for key in keys]
    pairs: list[tuple[int, int, Change, Change]] = []
    looked_at = sorted(fewer, key=_is_elsewhere)[:FILES]
    each = min(EACH, PAIRS // max(1, len(looked_at)))
    for file in looked_at:
        seen: set[bytes] = set()
        for rank, (key, table) in enumerate(tables):
            same = table.get(key(file))
            near = same.near(file.entry.size) if same is not None else iter(())
            for place, other in enumerate(islice(near, each - len(seen))):
                if other.path not in seen:
                    seen.add(other.path)
                    pairs.append((rank, place, file, other))
    pairs.sort(key=lambda pair: pair[:2])
    for _rank, _place, file, other in pairs:
        yield (file, other) if file.verb == "deleted" else (other, file)


class _Comparison:
    """Reads and compares files within the limits above."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._files, self._bytes, self._steps, self._room = READ, BYTES, STEPS, HELD
        self._affords: dict[bytes, bool] = {}
        self._spans: dict[bytes, Spans | None] = {}
        self._scores: dict[tuple[bytes, bytes], int] = {}

    def scores(self, pairs: Iterable[_Pair], is_free: Callable[[Change], bool]) -> dict[tuple[bytes, bytes], int]:
        """Return the scores, by both paths, for the pairs that are within the limits and whose files are both still
        free."""
        scores: dict[tuple[bytes, bytes], int] = {}
        for old, new in pairs:
            if self._steps <= 0:
                break
            paths = old.path, new.path
            if paths not in self._scores:
                if not (is_free(old) and is_free(new) and self.affords((old, new))):
                    continue
                self._scores[paths] = self.score(old, new)
            scores[paths] = self._scores[paths]
        return scores

    def affords(self, pair: _Pair) -> bool:
        """Return whether both files fit the read limits. Each file is counted once, even if it was read before."""
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
            self._spans[change.path] = result = spans(data) if data else None
            self._room -= len(result.counts) if result is not None else 0
        return self._spans[change.path]
