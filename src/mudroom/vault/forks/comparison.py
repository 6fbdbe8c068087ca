"""Comparison between two project states: the base, the project now, a fork, a fork at a checkpoint.

base             the fork's base
now              the project now
FORK             the fork's contents
FORK@CHECKPOINT  its contents at the checkpoint
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from mudroom.core.system.closing import ClosedOnError, Closing
from mudroom.core.text.linediff import count_lines, is_binary, split_lines
from mudroom.core.tree.change import Change, Changeset, Verb
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import flags_of, runs_when
from mudroom.core.tree.path import sort_key
from mudroom.errors import UsageError
from mudroom.stage.diff import diff
from mudroom.stage.layers.shown import with_shown
from mudroom.stage.layers.union import OneLayer, Union, staged_source
from mudroom.stage.originals.collection import TEXT_LIMIT
from mudroom.stage.originals.ground import Ground
from mudroom.stage.source import OpenSource, Source
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.stacking import find_checkpoint
from mudroom.vault.store.fork import Fork, load_record
from mudroom.vault.store.store import Vault


class ComparedSide:
    """A compared state: ``changes`` against its base, and the sources for changed and unchanged content."""

    def __init__(self, changes: Mapping[bytes, Change], staged: Source | None, ground: Ground | None) -> None:
        self.changes, self._staged, self._ground = changes, staged, ground

    def entry(self, path: bytes, original: Entry | None) -> Entry | None:
        """Return the entry at ``path``. ``original``: the base's entry, for a path that this side did not change."""
        change = self.changes.get(path)
        return change.staged if change is not None else original

    def open(self, path: bytes) -> int:
        if path in self.changes and self._staged is not None:
            return self._staged.open(path)
        original = self.changes[path].base if path in self.changes else None
        opened = None
        if self._ground is not None:
            entry = original or self._ground.base.look(path)
            opened = self._ground.open_original(path, entry) if entry is not None else None
        if opened is None:
            raise FileNotFoundError(2, os.strerror(2), path)
        return opened


class ProjectNow(ComparedSide):
    """The present project."""

    def __init__(self, live: Source) -> None:
        super().__init__({}, None, None)
        self._live = live

    def entry(self, path: bytes, original: Entry | None) -> Entry | None:
        del original
        return self._live.look(path)

    def open(self, path: bytes) -> int:
        return self._live.open(path)


class Comparison(Closing):
    """Two compared states: ``with Comparison(vault, "f@before", "f") as comparison: comparison.changeset;
    comparison.lines(changes)``."""

    def __init__(self, vault: Vault, old: str, new: str) -> None:
        self._vault = vault
        self._closers: list[OpenFork | OpenSource | Union | OneLayer] = []
        fork = next((_fork_name(state) for state in (new, old) if state not in ("base", "now")), None)
        if fork is None:
            raise UsageError(f"{old} and {new} can only be compared through a fork", "name one: mudroom diff FORK now")
        with ClosedOnError(self):
            self._sides = (self._side(old, fork), self._side(new, fork))

    def close(self) -> None:
        for source in self._closers:
            source.close()
        self._closers.clear()

    def _side(self, name: str, base_of: str) -> ComparedSide:
        if name == "now":
            live = OpenSource(self._vault.source)
            self._closers.append(live)
            return ProjectNow(live)
        fork = self._vault.fork(base_of if name == "base" else _fork_name(name))
        opened = OpenFork(self._vault, fork)
        self._closers.append(opened)
        ground = opened.ground()
        if name == "base":
            return ComparedSide({}, None, ground)
        _name, at, point = name.partition("@")
        if not at:
            record = fork.record
            changes = record.changeset.changes if record is not None else ()
            return ComparedSide(_by_path(changes), opened.staged(), ground)
        return self._checkpoint(fork, point, ground)

    def _checkpoint(self, fork: Fork, name: str, ground: Ground) -> ComparedSide:
        layers = find_checkpoint(fork, name).layers
        if not layers:
            return ComparedSide({}, None, ground)
        trees = tuple(fork.layer(layer) + b"/tree" for layer in reversed(layers))
        shown = fork.shown_at(layers)
        staged = staged_source(with_shown(trees, b"", shown, ()) if shown else trees)
        self._closers.append(staged)
        record = load_record(fork.layer(layers[-1]) + b"/record")
        return ComparedSide(_by_path(record.changeset.changes if record is not None else ()), staged, ground)

    @property
    def changeset(self) -> Changeset:
        """The changes from the old to the new state."""
        old, new = self._sides
        paths = sorted({*old.changes, *new.changes}, key=sort_key)
        changes = (self.change(path) for path in paths)
        return Changeset(tuple(change for change in changes if change is not None))

    def change(self, path: bytes) -> Change | None:
        """Return the change at a path; None if both states have the same there."""
        old, new = self._sides
        change = new.changes.get(path) or old.changes.get(path)
        if change is None:
            return None
        return self._compared(path, old.entry(path, change.base), new.entry(path, change.base))

    def open(self, side: int, path: bytes) -> int:
        """Return a descriptor for a file in the old (0) or the new state (1). Raise OSError."""
        return self._sides[side].open(path)

    def _compared(self, path: bytes, before: Entry | None, after: Entry | None) -> Change | None:
        if before is None and after is None:
            return None
        verb: Verb = "added" if before is None else "deleted" if after is None else "modified"
        is_directory = (after or before).kind == "directory"  # type: ignore[union-attr]
        flags = flags_of(path, is_directory=is_directory) if path else ()
        change = Change(path, verb, before, after, flags=flags, runs=runs_when(path, is_directory=is_directory))
        if before is not None and after is not None and before.kind != after.kind:
            return change
        if change.entry.kind != "file":
            shape = (before.mode, before.target) if before else (), (after.mode, after.target) if after else ()
            return change if shape[0] != shape[1] else None
        a, b = self._text(0, path, before), self._text(1, path, after)
        same_mode = before is not None and after is not None and before.mode == after.mode
        if same_mode and a == b and a is not None:
            return None
        if a is None or b is None or is_binary(a) or is_binary(b):
            return change._replace(binary=True)
        if verb != "modified":
            return change._replace(lines_added=len(split_lines(b)), lines_removed=len(split_lines(a)))
        counts = count_lines(a, b)
        return change._replace(lines_added=counts.added, lines_removed=counts.removed)

    def _text(self, side: int, path: bytes, entry: Entry | None) -> bytes | None:
        return b"" if entry is None else _read(self._sides[side], path, TEXT_LIMIT)

    def lines(self, changes: Iterable[Change]) -> Iterator[bytes]:
        """Yield the changes as unified diff."""
        old, new = self._sides
        return diff(lambda path, _entry, limit: _read(old, path, limit), new, changes)


def _read(side: ComparedSide, path: bytes, limit: int) -> bytes | None:
    try:
        with os.fdopen(side.open(path), "rb") as stream:
            data = stream.read(limit + 1)
    except OSError:
        return None
    return data if len(data) <= limit else None


def _by_path(changes: Iterable[Change]) -> dict[bytes, Change]:
    return {change.path: change for change in changes}


def _fork_name(side: str) -> str:
    return side.partition("@")[0]
