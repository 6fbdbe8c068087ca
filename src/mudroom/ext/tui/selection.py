"""The state of a review: the fork as it was read, chosen rows, reviewed rows, and the list's filter. This module draws
nothing and reads no files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from mudroom.api import show_path
from mudroom.core.merge.pick import WHOLE, Pick
from mudroom.core.network.push import PushRow
from mudroom.ext.tui.choice import FLAGS, Choice, Item, carry_picks, choice_of, complete_picks, first_choice
from mudroom.ext.tui.review_model import SeenFork

_WHOLE_FILE = -1


class Selection:
    """The fork as it was read, and its chosen rows."""

    def __init__(self) -> None:
        self.seen: SeenFork | None = None
        """None until the fork is read, and when it is gone."""
        self.picks: dict[bytes, Pick] = {}
        self.left: frozenset[str] = frozenset()
        """Held effects that an apply leaves in the fork, as ``PushRow.bound``."""

    @property
    def sent(self) -> tuple[PushRow, ...]:
        """The held effects that an apply sends."""
        return tuple(row for row in self.seen.pushes if row.bound not in self.left) if self.seen is not None else ()

    def flip_effect(self, effect: PushRow) -> None:
        """Send an effect with those that it needs, or leave it out with those that need it."""
        rows = self.seen.pushes if self.seen is not None else ()
        is_left = effect.bound in self.left
        others = {row.bound for row in rows if (row.name in effect.needs if is_left else effect.name in row.needs)}
        self.left = self.left - others - {effect.bound} if is_left else self.left | others | {effect.bound}

    @property
    def items(self) -> tuple[Item, ...]:
        return self.seen.items if self.seen is not None else ()

    def replace(self, seen: SeenFork) -> None:
        """Replace the fork by a new reading. Unchanged rows keep their choice."""
        is_first = self.seen is None
        self.picks = first_choice(seen.items) if is_first else carry_picks(self.items, seen.items, self.picks)
        self.seen = seen

    def clear(self) -> None:
        self.seen, self.picks = None, {}

    def choose(self, item: Item, pick: Pick | None) -> None:
        """Set the chosen part of a row. ``pick`` None: deselect the row."""
        before = set(self.picks)
        if pick is None:
            self.picks.pop(item.path, None)
        else:
            self.picks[item.path] = pick
        self.picks = complete_picks(self.items, self.picks, before)

    def choose_all(self, items: Iterable[Item], wanted: bool) -> None:
        """Select or deselect rows. Rows that must be named can only be selected one by one."""
        before = set(self.picks)
        for item in items:
            if not wanted:
                self.picks.pop(item.path, None)
            elif not item.to_be_named:
                self.picks[item.path] = WHOLE
        picks = complete_picks(self.items, self.picks, before)
        unnamed = any(item.to_be_named and item.path in picks and item.path not in before for item in self.items)
        self.picks = complete_picks(self.items, self.picks, None) if unnamed else picks

    def choice(self) -> Choice | None:
        """Return the choice for an apply, or None if no row is chosen."""
        return choice_of(self.items, self.picks)


class ReviewMarks:
    """The files and blocks marked as reviewed."""

    def __init__(self) -> None:
        self._marked: dict[bytes, frozenset[int]] = {}
        self._blocks: dict[bytes, frozenset[int]] = {}
        """All blocks by path, known only for files whose differences have been shown."""

    def keep_unchanged(self, before: Sequence[Item], after: Sequence[Item]) -> None:
        """Drop the marks on rows that have changed between two readings."""
        rows_before = {item.path: item for item in before}
        self._marked = {
            item.path: self._marked[item.path]
            for item in after
            if item.path in self._marked and rows_before.get(item.path) == item
        }

    def set_blocks(self, path: bytes, blocks: frozenset[int]) -> None:
        self._blocks[path] = blocks

    def is_complete(self, path: bytes) -> bool:
        """Return whether a file is marked, or all its blocks are."""
        marked = self._marked.get(path, frozenset())
        return _WHOLE_FILE in marked or (path in self._blocks and marked >= self._blocks[path])

    def by_path(self) -> dict[bytes, bool]:
        return {path: self.is_complete(path) for path in self._marked}

    def blocks(self, path: bytes) -> frozenset[int]:
        marked = self._marked.get(path, frozenset())
        return self._blocks.get(path, frozenset()) if _WHOLE_FILE in marked else marked

    def toggle_blocks(self, path: bytes, blocks: Collection[int]) -> None:
        self._marked[path] = self.blocks(path) ^ frozenset(blocks)

    def toggle_files(self, paths: Sequence[bytes]) -> None:
        """Mark files, or unmark them if all are marked."""
        all_marked = all(self.is_complete(path) for path in paths)
        for path in paths:
            self._marked[path] = frozenset() if all_marked else frozenset((_WHOLE_FILE,))


class Filter(NamedTuple):
    name: str
    accepts: Callable[[frozenset[str], Pick | None], bool]


FILTERS = (
    Filter("all files", lambda _flags, _pick: True),
    Filter("chosen", lambda _flags, pick: pick is not None),
    Filter("left out, or in part", lambda _flags, pick: pick != WHOLE),
    *(Filter(words, lambda flags, _pick, flag=flag: flag in flags) for flag, _sign, words in FLAGS),  # type: ignore[misc]
)


class ListFilter:
    """Selects the list's rows by kind and by a text in the path."""

    def __init__(self) -> None:
        self.kind = FILTERS[0]
        self.words = ""

    def clear(self) -> None:
        self.kind, self.words = FILTERS[0], ""

    def text(self) -> str:
        """Return the filter in words; empty if all rows are shown."""
        if self.kind is FILTERS[0] and not self.words:
            return ""
        return " ".join(filter(None, (self.kind.name, repr(self.words) if self.words else "")))

    def rows(
        self, items: Iterable[Item], flags: Mapping[bytes, frozenset[str]], picks: Mapping[bytes, Pick]
    ) -> list[Item]:
        words = self.words.lower()
        return [
            item
            for item in items
            if self.kind.accepts(flags.get(item.path, frozenset()), picks.get(item.path))
            and (not words or words in show_path(item.path).lower())
        ]
