"""Reads both versions at single changed paths: in a fork's changes, or in two compared states.

Open it for one reading. A change is described as it was collected; if the file has changed since, reading it raises
``ForkMoved``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable

from mudroom.core.system.closing import ClosedOnError
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.review_tags import LARGE
from mudroom.core.tree.similar_renames import Move
from mudroom.errors import ForkMoved
from mudroom.stage.source import open_recorded
from mudroom.typing import Literal, NamedTuple
from mudroom.vault.forks.comparison import Comparison
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.record_view import RecordView
from mudroom.vault.store.store import Vault

Which = Literal["old", "new"]


class SidePair(NamedTuple):
    """A change with the entries on both sides."""

    change: Change
    old: Entry | None
    new: Entry | None
    source: bytes = b""
    """A renamed file's old path."""


class BothSides(ABC):
    """Access to both versions at a path."""

    @abstractmethod
    def find(self, path: bytes) -> SidePair | None:
        """Return both sides of a change, or None if the path has not changed. A renamed file is found by its
        new path."""

    @abstractmethod
    def open(self, two: SidePair, which: Which) -> int | None:
        """Return a descriptor of a regular file; None if the path has none, or its old version is no longer known.

        Raise ForkMoved if the fork's file has changed since the changes were collected, OSError if it cannot be read.
        """

    def read(self, two: SidePair, which: Which, most: int) -> bytes | None:
        """Return at most ``most`` bytes from the file; None as for ``open``."""
        descriptor = self.open(two, which)
        if descriptor is None:
            return None
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(most)

    def move(self, path: bytes, hides: Callable[[bytes], bool]) -> Move | None:
        """Return both ends of a file that was moved and changed, if both may be read; else None. ``hides``: whether a
        path's content must not be read."""
        del path, hides
        return None


class SideReader(BothSides):
    """Both versions in a fork's record: ``with SideReader(vault, fork, view) as sides: two = sides.find(path)``"""

    def __init__(self, vault: Vault, fork: str, view: RecordView) -> None:
        self._view, self._changes = view, view.by_path
        self._opened = OpenFork(vault, vault.fork(fork))
        with ClosedOnError(self._opened):
            self._places, self._ground = self._opened.recorded(), self._opened.ground(view.changeset)

    def __enter__(self) -> SideReader:
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.close()

    def find(self, path: bytes) -> SidePair | None:
        change = self._changes.get(path)
        if change is None or change.moved_to:
            return None
        if not change.source:
            return SidePair(change, change.base, change.staged)
        gone = self._changes.get(change.source)
        return SidePair(change, gone.base if gone is not None else change.staged, change.staged, change.source)

    def open(self, two: SidePair, which: Which) -> int | None:
        entry = two.old if which == "old" else two.new
        if entry is None or entry.kind != "file":
            return None
        if which == "old" and not two.source:
            return self._ground.open_original(two.change.path, entry)
        assert two.new is not None
        return open_recorded(self._places, two.change.path, two.new)  # both sides are the same file in a rename

    def move(self, path: bytes, hides: Callable[[bytes], bool]) -> Move | None:
        with self._view.moves(hides) as moves:
            move = moves.of(path, self._whole)
        return move if move is not None and not hides(move.old) and not hides(move.new) else None

    def moves(self, hides: Callable[[bytes], bool]) -> tuple[Move, ...]:
        """Return all moves, sorted by new path."""
        with self._view.moves(hides) as moves:
            all_moves = moves.all(self._whole)
        return tuple(move for move in all_moves if not hides(move.old) and not hides(move.new))

    def _whole(self, change: Change) -> bytes | None:
        """Return the content of an added or deleted file; None if it is too large or has changed since it was
        collected."""
        try:
            data = self.read(
                SidePair(change, change.base, change.staged), "old" if change.staged is None else "new", LARGE + 1
            )
        except (ForkMoved, OSError):
            return None
        return data if data is not None and len(data) <= LARGE else None


class ComparedSides(BothSides):
    """Both versions in two states that ``vault/forks/comparison.py`` compares."""

    def __init__(self, vault: Vault, old: str, new: str) -> None:
        self._comparison = Comparison(vault, old, new)

    def __enter__(self) -> ComparedSides:
        return self

    def __exit__(self, *_error: object) -> None:
        self._comparison.close()

    def find(self, path: bytes) -> SidePair | None:
        change = self._comparison.change(path)
        return SidePair(change, change.base, change.staged) if change is not None else None

    def open(self, two: SidePair, which: Which) -> int | None:
        entry = two.old if which == "old" else two.new
        if entry is None or entry.kind != "file":
            return None
        try:
            return self._comparison.open(int(which == "new"), two.change.path)
        except OSError:
            return None
