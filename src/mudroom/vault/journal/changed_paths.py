"""The paths that one command changed, for the journal: where two collections of a fork differ.

A command that restores a file's size and times is not seen; the digest of the last event differs from the content
then. While several commands run in one fork, each one's event has the changes of all.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Callable, Iterator
from heapq import nsmallest

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.errors import MudroomError
from mudroom.stage.source import open_recorded
from mudroom.typing import Any, Literal
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

MOST_PATHS = 200
"""Paths in one event. Those nearest to the project's top are kept, so that of a new directory there is at least its
name."""
MOST_BYTES, LARGEST = 8 << 20, 1 << 20
"""Bytes that are read for the digests of one event, and of one file."""

PathChange = Literal["added", "modified", "deleted", "mode"]


def recorded_changes(fork: Fork) -> Changeset:
    """Return the changes in a fork's record, or in that of its sealed layers."""
    record = fork.record
    return record.changeset if record is not None else fork.sealed_changes


def changed_paths(
    vault: Vault, fork: Fork, before: Changeset, after: Changeset, hides: Callable[[bytes], bool]
) -> dict[str, Any]:
    """Return the fields ``paths`` and ``paths_left_out`` of an event; none if nothing has changed. A row is path, kind
    and digest of the content (``digest_of``), empty if it was not read. Secrets (``hides``) are not told."""
    rows = list(_differences(before, after))
    if not rows:
        return {}
    paths, most = list[list[str]](), MOST_BYTES
    told = nsmallest(MOST_PATHS, rows, lambda row: (row[0].count(b"/"), row[0]))
    try:
        told = [row for row in told if not hides(row[0])]
    except MudroomError:  # the names of secrets are not known
        told = []
    with OpenFork(vault, fork) as opened:
        places = opened.recorded()
        for path, kind, entry in told:
            digest, size = "", entry.size if entry is not None and entry.kind == "file" else -1
            if entry is not None and 0 <= size <= min(LARGEST, most):
                most -= size
                try:
                    with os.fdopen(open_recorded(places, path, entry), "rb") as stream:
                        digest = digest_of(stream.read(LARGEST))
                except (MudroomError, OSError):
                    pass  # it has changed since, or is closed to us
            paths.append([os.fsdecode(path), kind, digest])
    left_out = len(rows) - len(told)
    return {"paths": paths} | ({"paths_left_out": left_out} if left_out else {})


def digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _differences(before: Changeset, after: Changeset) -> Iterator[tuple[bytes, PathChange, Entry | None]]:
    """Yield each path with another entry in the fork than before, and that entry; None if the path is deleted."""
    earlier = {change.path: change for change in before.changes}
    for change in after.changes:
        was = earlier.pop(change.path, None)
        old = was.staged if was is not None else change.base
        if not same_stamp(old, change.staged):
            yield change.path, _kind(old, change.staged), change.staged
    for path, gone in earlier.items():  # as in the project again
        if not same_stamp(gone.staged, gone.base):
            yield path, _kind(gone.staged, gone.base), None


def _kind(old: Entry | None, new: Entry | None) -> PathChange:
    if old is None or new is None:
        return "added" if old is None else "deleted"
    return "mode" if same_stamp(old, new._replace(mode=old.mode)) else "modified"
