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
from mudroom.core.merge.operations import plan_landing
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry, is_untouched, same_shape
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


def merge_into(session: Session, target: str, other: str) -> bool:
    """Merge the changes of fork ``other`` into fork ``target``. Return whether they merge without a conflict; otherwise
    ``target`` is unchanged. Raise OSError if the disk fails."""
    vault, changes = session.vault, session.changes.of(other)
    moved = {change.source: change.path for change in session.changes.of(target).changes if change.source}
    with (
        _new_directory(vault) as place,
        OpenFork(vault, vault.fork(target)) as below,
        OpenFork(vault, vault.fork(other)) as above,
    ):
        staged = above.staged()
        sides = _Sides(below.merged(), staged, above.ground(changes), moved, place)
        masked = {remark.path for remark in changes.remarks if remark.text == MASKED}
        landing = plan_landing(changes.changes, sides.live(), masked=masked)
        if landing.conflicts:
            return False
        rehearse(session.forks.tools.tree(target), landing, staged, place)
    session.forks.flush(target)
    return True


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
