"""Both sides of single changes, to be read: of what a fork would change, or of two states that are compared.

Open it for one look: what it says of changes is what was written down when they were collected, and a file that is
another one by now is not read in its place (``ForkMoved``).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.core.tree.review_tags import LARGE
from mudroom.core.tree.similar_renames import Move
from mudroom.errors import ForkMoved
from mudroom.vault.forks.comparison import Comparison
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.record_view import RecordView
from mudroom.vault.store.store import Vault

Which = Literal["old", "new"]


class SidePair(NamedTuple):
    """One change with what is on both sides of it."""

    change: Change
    old: Entry | None
    new: Entry | None
    source: bytes = b""
    """Of what was renamed: where the old one was."""


class Pair(ABC):
    """What can be asked of both sides, whatever they are."""

    @abstractmethod
    def find(self, path: bytes) -> SidePair | None:
        """None: nothing has changed there. What has only moved away is found by its new path."""

    @abstractmethod
    def open(self, two: SidePair, which: Which) -> int | None:
        """A descriptor of a regular file; None: there is none, or what it was is not known any more. Raises ForkMoved
        if the fork has another one meanwhile, OSError if it cannot be read."""

    def read(self, two: SidePair, which: Which, most: int) -> bytes | None:
        """At most so many bytes of it; None as for ``open``."""
        descriptor = self.open(two, which)
        if descriptor is None:
            return None
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(most)

    def move(self, path: bytes, hides: Callable[[bytes], bool]) -> Move | None:
        """Of a file that was moved and changed in one go: both its ends, if they may be read. ``hides``: whether nobody
        reads what is at a path."""
        del path, hides
        return None


class SideReader(Pair):
    """``with Sides(vault, fork, gist) as sides: two = sides.find(path); sides.open(two, "old")``"""

    def __init__(self, vault: Vault, fork: str, gist: RecordView) -> None:
        self._gist, self._changes = gist, gist.by_path
        self._opened = OpenFork(vault, vault.fork(fork))
        try:
            self._staged, self._ground = self._opened.staged(), self._opened.ground(gist.changeset)
        except BaseException:
            self._opened.close()
            raise

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
        now = self._staged.look(two.change.path)  # of what was renamed both sides are the same: that is how it is found
        if now is None or two.new is None or _stamp(now) != _stamp(two.new):
            raise ForkMoved(two.change.path, show(two.change.path))
        return self._staged.open(two.change.path)

    def move(self, path: bytes, hides: Callable[[bytes], bool]) -> Move | None:
        with self._gist.moves(hides) as moves:
            found = moves.of(path, self._whole)
        return found if found is not None and not hides(found.old) and not hides(found.new) else None

    def moves(self, hides: Callable[[bytes], bool]) -> tuple[Move, ...]:
        """All of them, in the order of the new paths."""
        with self._gist.moves(hides) as moves:
            found = moves.all(self._whole)
        return tuple(move for move in found if not hides(move.old) and not hides(move.new))

    def _whole(self, change: Change) -> bytes | None:
        """What was deleted or added; None: it is not (any more) what is written down of it."""
        try:
            data = self.read(
                SidePair(change, change.base, change.staged), "old" if change.staged is None else "new", LARGE + 1
            )
        except (ForkMoved, OSError):
            return None
        return data if data is not None and len(data) <= LARGE else None


class ComparedPath(Pair):
    """The same of two states, as ``vault/forks/comparison.py`` has them."""

    def __init__(self, vault: Vault, old: str, new: str) -> None:
        self._comparison = Comparison(vault, old, new)

    def __enter__(self) -> ComparedPath:
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


def _stamp(entry: Entry) -> tuple[object, ...]:
    return entry.kind, entry.size, entry.mtime
