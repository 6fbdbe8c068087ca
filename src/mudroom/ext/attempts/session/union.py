"""The union of two attempts: the changes of one merged into a fork of the other, as an apply merges.

The other attempt takes the project's place in an apply: ``core/merge/merge_tree.py`` judges each change against it, and
the common base is the original. A union is made only without conflicts. As in an apply, changes to masked files and to
repositories are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mudroom.core.merge.merge import BINARY, Combined, merged_mode
from mudroom.core.merge.merge_tree import FileSides, LiveProject
from mudroom.core.merge.operations import Landing, plan_landing
from mudroom.core.tree.change import Change, Changeset
from mudroom.core.tree.entry import Entry, is_untouched, same_shape
from mudroom.core.tree.path import ancestors
from mudroom.session.session import Session
from mudroom.stage.beneath import look, open_root
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.originals.collection import MASKED
from mudroom.stage.originals.ground import Ground
from mudroom.stage.source import Source, read_all, same_as, walk
from mudroom.vault.apply.rehearsal import rehearse
from mudroom.vault.conflict.reconciliation import LIMIT, merge_texts
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.store import Vault

ForkChanges = tuple[str, Changeset]
"""A fork's name and its changes."""


def merge_into(session: Session, target: str, other: str) -> bool:
    """Merge the changes of fork ``other`` into fork ``target``. Return whether they merge without a conflict; otherwise
    ``target`` is unchanged. Raise OSError if the disk fails."""
    below, above = session.changes.of(target), session.changes.of(other)
    with _planned(session.vault, (target, below), (other, above)) as (landing, staged, place):
        if landing.conflicts:
            return False
        rehearse(session.forks.tools.tree(target), landing, staged, place)
    session.forks.flush(target)
    return True


def conflicts_between(vault: Vault, target: ForkChanges, other: ForkChanges) -> tuple[bytes, ...]:
    """Return the paths at which ``merge_into`` would find a conflict. Nothing is run, and neither fork is changed.
    Raise OSError, or MudroomError if a fork cannot be read."""
    if not _may_conflict(target[1], other[1]):
        return ()
    with _planned(vault, target, other) as (landing, _staged, _place):
        return tuple(conflict.path for conflict in landing.conflicts)


def _may_conflict(one: Changeset, other: Changeset) -> bool:
    """Return whether two forks have changed the same paths, or one a directory above the other's."""
    touched = [
        {path for change in changes.changes for path in (change.path, change.source, change.moved_to) if path}
        for changes in (one, other)
    ]
    above = [{each for path in paths for each in ancestors(path)} for paths in touched]
    return not (touched[0].isdisjoint(touched[1] | above[1]) and touched[1].isdisjoint(above[0]))


@contextmanager
def _planned(vault: Vault, target: ForkChanges, other: ForkChanges) -> Iterator[tuple[Landing, Source, bytes]]:
    """Yield the landing of one fork's changes in another, with the staged files and the directory of merged
    contents."""
    moved = {change.source: change.path for change in target[1].changes if change.source}
    with (
        _new_directory(vault) as place,
        OpenFork(vault, vault.fork(target[0])) as below,
        OpenFork(vault, vault.fork(other[0])) as above,
    ):
        staged, changes = above.staged(), other[1]
        sides = _Sides(below.merged(), staged, above.ground(changes), moved, place)
        masked = {remark.path for remark in changes.remarks if remark.text == MASKED}
        yield plan_landing(changes.changes, sides.live(), masked=masked), staged, place


@contextmanager
def _new_directory(vault: Vault) -> Iterator[bytes]:
    place = vault.merged + b"/" + os.urandom(6).hex().encode()
    os.makedirs(place, mode=0o700)
    try:
        yield place
    finally:
        remove_tree(place)


class _Sides:
    """One attempt (``ours``) and another's changes (``theirs``), as a landing reads them. Owner: the caller."""

    def __init__(
        self, ours: Source, theirs: Source, ground: Ground, moved: Mapping[bytes, bytes], place: bytes
    ) -> None:
        """``moved``: new path by old path, for files that ours has renamed. ``place``: directory for merged
        contents."""
        self._ours, self._theirs, self._ground, self._moved, self._place = ours, theirs, ground, moved, place
        self._count = 0

    def live(self) -> LiveProject:
        return LiveProject(
            self._ours.look,
            self._same_as_staged,
            self._same_tree,
            combine=self._combine,
            moved=lambda change: self._moved.get(change.path, b""),
            staged_directory=self._theirs.look,
        )

    def _same_as_staged(self, change: Change, ours: Entry) -> bool:
        if not same_shape(change.staged, ours):
            return False
        if ours.kind != "file":
            return True
        return same_as(self._ours.open(change.path), self._theirs, change.path)

    def _same_tree(self, path: bytes, expected: dict[bytes, Entry]) -> bool:
        present = dict(walk(self._ours, path))
        return present.keys() == expected.keys() and all(
            is_untouched(expected[name], entry) for name, entry in present.items()
        )

    def _combine(self, sides: FileSides) -> Combined:
        (base_at, base), (ours_at, ours), (theirs_at, theirs) = sides[:3]
        if {entry.kind for entry in (base, ours, theirs) if entry is not None} != {"file"}:
            return Combined(None, reason=BINARY)
        assert theirs is not None
        if ours is None:
            mode: int | None = theirs.mode
        else:
            mode = merged_mode(base.mode if base is not None else None, ours.mode, theirs.mode)
        before = self._original(base_at, base, theirs_at)
        mine = read_all(self._ours, ours_at, LIMIT) if ours is not None else before
        yours = read_all(self._theirs, theirs_at, LIMIT)
        if mode is None or before is None or mine is None or yours is None:
            return Combined(None, reason=BINARY)
        content, reason = merge_texts(before, mine, yours)
        if reason:
            return Combined(None, reason=reason)
        if sides.path == ours_at and ours is not None and (content, mode) == (mine, ours.mode):
            return Combined(None)
        return self._kept(content, mode)

    def _original(self, path: bytes, base: Entry | None, theirs_at: bytes) -> bytes | None:
        if base is None:
            return b""
        if path != theirs_at:  # only a file with unchanged content counts as renamed
            return read_all(self._theirs, theirs_at, LIMIT)
        return self._ground.read_original(path, base, LIMIT)

    def _kept(self, content: bytes, mode: int) -> Combined:
        self._count += 1
        name = b"%d" % self._count
        descriptor = os.open(self._place + b"/" + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(descriptor, mode)
        root = open_root(self._place)
        try:
            return Combined(look(root, name), name.decode())
        finally:
            os.close(root)
