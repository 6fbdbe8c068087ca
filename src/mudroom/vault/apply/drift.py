"""What the project has changed itself where a fork has changes: to be told before an apply merges it, or cannot.

Cheap enough to be asked every few seconds: a changed path costs one lstat(2), what lies in a directory that only the
fork has costs nothing, and contents are compared only where that tells a difference. No lock is needed: what is told
here decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.entry import Entry, same_shape, same_stamp
from mudroom.core.tree.path import name, parent
from mudroom.stage.beneath import directory, look, open_root
from mudroom.stage.originals.ground import Ground
from mudroom.stage.source import DirectorySource, SourceContent, same_bytes
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

GONE = "deleted in the project meanwhile"
GAINED = "the project has gained one of that name meanwhile"
KIND = "replaced in the project by an entry of another kind"
EDITED = "changed in the project meanwhile"
MODE = "its permissions were changed in the project meanwhile"
NOWHERE = "its directory is not in the project any more"
CLOSED = "cannot be looked at in the project"


def find_drift(vault: Vault, fork: Fork) -> list[Remark]:
    """A remark for each path, in walking order. Raises OSError if the project itself cannot be opened."""
    record = fork.record
    if record is None or not record.changeset.changes:
        return []
    changes, found = record.changeset.changes, dict[bytes, str]()
    root = open_root(vault.project)
    try:
        suspects = dict(_suspects(root, changes, found))
        if suspects:
            with OpenFork(vault, fork) as opened:
                ground, staged, live = opened.ground(record.changeset), opened.staged(), DirectorySource(root)
                for change, ours in suspects.items():
                    if not _is_known(change, ours, ground, live) and not _is_there(change, ours, staged, live):
                        found[change.path] = _told(change.base, ours)
    finally:
        os.close(root)
    return [Remark(change.path, found[change.path]) for change in changes if change.path in found]


def _suspects(root: int, changes: Sequence[Change], found: dict[bytes, str]) -> Iterator[tuple[Change, Entry | None]]:
    """Those of which the project has another entry than the one that was collected; in ``found``, those of which not
    even that can be told."""
    places: dict[bytes, list[Change]] = {}  # a directory's own change is in one that comes before its own
    for change in changes:
        places.setdefault(parent(change.path), []).append(change)
    absent: set[bytes] = set()
    for place, within in places.items():
        if place in absent:
            absent |= {change.path for change in within if change.entry.kind == "directory"}
            continue
        try:
            with directory(root, place) as opened:
                entries = [(change, look(opened, name(change.path))) for change in within]
        except PermissionError:
            found.update((change.path, CLOSED) for change in within)
            continue
        except OSError:  # gone, or a link now: what comes has nowhere to go, what was there is gone
            found.update((change.path, NOWHERE) for change in within if change.base is None)
            entries = [(change, None) for change in within if change.base is not None]
        absent |= {change.path for change, ours in entries if _is_nowhere_yet(change, ours)}
        yield from ((change, ours) for change, ours in entries if not same_stamp(change.base, ours))


def _is_nowhere_yet(change: Change, ours: Entry | None) -> bool:
    """Whether it is a directory that the fork has made, of nothing or of what was no directory, and the project has
    none there, either."""
    if change.entry.kind != "directory":
        return False
    if change.base is None:
        return ours is None
    return change.base.kind != "directory" and (ours is None or ours.kind != "directory")


def _is_known(change: Change, ours: Entry | None, ground: Ground, live: SourceContent) -> bool:
    """Whether it is what the fork started from after all: touched, or written anew with the same content."""
    base = change.base
    if base is None or ours is None or not same_shape(base, ours) or base.size != ours.size:
        return False
    if base.kind != "file":
        return True
    kept = ground.open_original(change.path, base)
    return kept is not None and _same_content(kept, change.path, live)


def _is_there(change: Change, ours: Entry | None, staged: SourceContent, live: SourceContent) -> bool:
    """Whether the project has what the fork wants it to have, already."""
    wanted = change.staged
    if wanted is None or ours is None:
        return wanted is ours
    if wanted.kind == ours.kind == "directory" and change.base is None:
        return True  # both have made one: permissions are the project's
    if not same_shape(wanted, ours) or wanted.size != ours.size:
        return False
    if wanted.kind != "file":
        return True
    try:
        return _same_content(staged.open(change.path), change.path, live)
    except OSError:
        return False


def _same_content(opened: int, path: bytes, live: SourceContent) -> bool:
    """Closes ``opened``."""
    try:
        mine = live.open(path)
    except OSError:
        os.close(opened)
        return False
    try:
        return same_bytes(opened, mine)
    except OSError:
        return False
    finally:
        os.close(opened)
        os.close(mine)


def _told(base: Entry | None, ours: Entry | None) -> str:
    if base is None:
        return GAINED
    if ours is None:
        return GONE
    if base.kind != ours.kind:
        return KIND
    return MODE if (base.size, base.target, base.mtime) == (ours.size, ours.target, ours.mtime) else EDITED
