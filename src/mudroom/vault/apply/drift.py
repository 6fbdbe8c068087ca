"""Paths that both the fork and the project have changed, reported before an apply merges them or finds a conflict.

Cheap enough to be called every few seconds: a changed path costs one lstat(2), paths in a directory that only the fork
has cost nothing, and contents are compared only where the entries differ. No lock is needed, because the result is only
shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.entry import Entry, is_untouched, same_shape, same_stamp
from mudroom.core.tree.path import name, parent
from mudroom.stage.beneath import directory, look, open_root
from mudroom.stage.originals.ground import Ground
from mudroom.stage.source import DirectorySource, SourceContent, same_as
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

GONE = "deleted in the project meanwhile"
GAINED = "created in the project meanwhile"
KIND = "replaced in the project by an entry of another kind"
EDITED = "changed in the project meanwhile"
MODE = "its permissions were changed in the project meanwhile"
TOUCHED = "its times have changed in the project meanwhile, and its earlier content is not known"
NOWHERE = "its directory is not in the project any more"
CLOSED = "cannot be read in the project: permission denied"


def find_drift(vault: Vault, fork: Fork) -> list[Remark]:
    """Return a remark for each such path, in walking order. Raise OSError if the project itself cannot be opened."""
    record = fork.record
    if record is None or not record.changeset.changes:
        return []
    changes, reasons = record.changeset.changes, dict[bytes, str]()
    with Descriptor(open_root(vault.source)) as root:
        suspects = dict(_suspects(root, changes, reasons))
        if suspects:
            with OpenFork(vault, fork) as opened:
                ground, staged, live = opened.ground(record.changeset), opened.staged(), DirectorySource(root)
                for change, ours in suspects.items():
                    if not _equals_base(change, ours, ground, live) and not _equals_staged(change, ours, staged, live):
                        reasons[change.path] = _describe(change.base, ours)
    return [Remark(change.path, reasons[change.path]) for change in changes if change.path in reasons]


def _suspects(root: int, changes: Sequence[Change], reasons: dict[bytes, str]) -> Iterator[tuple[Change, Entry | None]]:
    """Yield the changes whose base differs from the project's entry. For a path that cannot be examined, add a reason
    to ``reasons``."""
    places: dict[bytes, list[Change]] = {}  # A directory's own change is in its parent's group, which comes first.
    for change in changes:
        places.setdefault(parent(change.path), []).append(change)
    absent: set[bytes] = set()
    for place, group in places.items():
        if place in absent:
            absent |= {change.path for change in group if change.entry.kind == "directory"}
            continue
        try:
            with directory(root, place) as opened:
                entries = [(change, look(opened, name(change.path))) for change in group]
        except PermissionError:
            reasons.update((change.path, CLOSED) for change in group)
            continue
        except OSError:  # gone, or a link now: an added path has no parent, a changed path is gone
            reasons.update((change.path, NOWHERE) for change in group if change.base is None)
            entries = [(change, None) for change in group if change.base is not None]
        absent |= {change.path for change, ours in entries if _is_nowhere_yet(change, ours)}
        yield from ((change, ours) for change, ours in entries if not is_untouched(change.base, ours))


def _is_nowhere_yet(change: Change, ours: Entry | None) -> bool:
    """Whether the fork has made a directory, in place of nothing or a non-directory, and the project has no directory
    there."""
    if change.entry.kind != "directory":
        return False
    if change.base is None:
        return ours is None
    return change.base.kind != "directory" and (ours is None or ours.kind != "directory")


def _equals_base(change: Change, ours: Entry | None, ground: Ground, live: SourceContent) -> bool:
    """Whether the project's entry equals the fork's base after all: touched, or rewritten with the same content."""
    base = change.base
    if base is None or ours is None or not same_shape(base, ours) or base.size != ours.size:
        return False
    if base.kind != "file":
        return True
    kept = ground.open_original(change.path, base)
    return kept is not None and _same_content(kept, change.path, live)


def _equals_staged(change: Change, ours: Entry | None, staged: SourceContent, live: SourceContent) -> bool:
    """Whether the project already has the fork's version."""
    staged_entry = change.staged
    if staged_entry is None or ours is None:
        return staged_entry is ours
    if staged_entry.kind == ours.kind == "directory" and change.base is None:
        return True  # both have made a directory; the project's permissions stay
    if not same_shape(staged_entry, ours) or staged_entry.size != ours.size:
        return False
    if staged_entry.kind != "file":
        return True
    try:
        return _same_content(staged.open(change.path), change.path, live)
    except OSError:
        return False


def _same_content(opened: int, path: bytes, live: SourceContent) -> bool:
    """Whether the content equals the content at ``path`` in ``live``. Closes ``opened``."""
    try:
        return same_as(opened, live, path)
    except OSError:
        return False


def _describe(base: Entry | None, ours: Entry | None) -> str:
    if base is None:
        return GAINED
    if ours is None:
        return GONE
    if base.kind != ours.kind:
        return KIND
    if same_stamp(base, ours):
        return TOUCHED
    return MODE if (base.size, base.target, base.mtime) == (ours.size, ours.target, ours.mtime) else EDITED
