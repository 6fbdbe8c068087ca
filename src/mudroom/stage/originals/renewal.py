"""Renew an unused snapshot: a snapshot that no fork needs any more is updated to the project's present state.

Most of a project is unchanged: a walk finds the files that have changed since (``is_untouched``, by ctime too), and
only those are copied again. A file whose ctime lay within the clock's tick when the snapshot was taken has the ctime 0
in the manifest, so it counts as changed (``as_recorded``).

Crash order: the manifest is removed first and written last. A snapshot without one is incomplete, and is removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry, is_untouched
from mudroom.errors import MudroomError
from mudroom.stage import disk
from mudroom.stage.beneath import open_root, reach
from mudroom.stage.copy import clone
from mudroom.stage.layers.layer import remove_at, remove_tree
from mudroom.stage.originals.snapshot import (
    Choose,
    copy_top,
    items_to_copy,
    read_manifest,
    save_snapshot,
    with_held,
)
from mudroom.stage.source import OpenSource
from mudroom.stage.stamp import file_clock

Entries = Mapping[bytes, Entry]


def renew(
    project: bytes,
    place: bytes,
    *,
    choose: Choose,
    limit: int | None,
    masked: Collection[bytes] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Update the snapshot at ``place`` to the project's present state. Arguments, result and errors are those of
    ``take``; after an error the snapshot is gone. Raise MudroomError if it cannot be reused."""
    started, held = file_clock(), list[bytes]()
    try:
        before = read_manifest(place)
        if any(entry.kind == "directory" and entry.mode & 0o700 != 0o700 for entry in before.values()):
            raise MudroomError("a directory of the earlier snapshot is closed to its owner")
        _begin(place)
        with OpenSource(project) as source:
            items, notes = items_to_copy(source, choose, held, masked, limit)
            kept = unchanged(before, items)
            with Descriptor(open_root(place + b"/source")) as target:
                _remove(target, [path for path in before if path and path not in kept])
                changed = {path: entry for path, entry in items.items() if path not in kept}
                copied = clone(source, target, changed, progress, held, kept)
                _set_modes(target, {path: items[path].mode for path in kept if items[path].mode != before[path].mode})
                top = copy_top(source, target)
            save_snapshot(place, top, items, copied, masked, started)
    except BaseException:
        remove_tree(place)
        raise
    return with_held(notes, held)


def unchanged(before: Entries, now: Entries) -> set[bytes]:
    """Return the paths whose copies can be kept: directories, whose modes may differ now, and all other untouched
    entries. Files with several names are kept together or not at all: their copies are one file."""
    kept = {path for path, entry in now.items() if (old := before.get(path)) is not None and _is_good(old, entry)}
    then = _linked(before)
    for paths in _linked(now):
        if paths not in then or not paths <= kept:
            kept -= paths
    return kept


def _is_good(old: Entry, entry: Entry) -> bool:
    if entry.kind == "directory":
        return old.kind == "directory"  # even if it was replaced: each entry in it is compared
    return is_untouched(old, entry)


def _linked(entries: Entries) -> list[set[bytes]]:
    """Return, for each file with several names, its names."""
    by_file: dict[tuple[int, int], set[bytes]] = {}
    for path, entry in entries.items():
        if entry.kind == "file" and entry.links > 1:
            by_file.setdefault((entry.device, entry.inode), set()).add(path)
    return list(by_file.values())


def _begin(place: bytes) -> None:
    """Make the snapshot incomplete, and remove the files derived from it: layers for git, and the list of masked
    paths."""
    os.unlink(place + b"/manifest")
    for name in os.listdir(place):
        if name != b"source":
            remove_tree(place + b"/" + name)


def _remove(target: int, paths: Collection[bytes]) -> None:
    for path in sorted(paths):  # a directory before its contents, which are then gone with it
        try:
            with reach(target, path) as (at, rest):
                remove_at(at, rest)
        except FileNotFoundError:
            continue


def _set_modes(target: int, modes: Mapping[bytes, int]) -> None:
    """Set directory modes, deepest first: a mode may close the directories below."""
    for path in sorted(modes, reverse=True):
        with reach(target, path) as (at, rest):
            disk.set_mode(at, rest, modes[path])
