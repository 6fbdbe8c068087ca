"""A snapshot: a frozen copy of the project, which forks may use as base instead of the project itself.

    source/     the copy, reflinks where the file system has them
    masked      the paths that were left out because they are masked, separated by NUL; may be missing
    git-<hash>/ layers over the copy that hide masked files from git (stage/views/git_mask.py)
    manifest    for every entry in it: the project's entry at that moment (MessagePack)

As a ``Source`` it returns the *project's* entries and the copy's content, so that a later merge can tell at once
whether the project's file is still the copied version.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection

from mudroom.core.settings import Settings
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry, FileHeld
from mudroom.core.tree.path import parent
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import open_file, open_root
from mudroom.stage.copy import clone, listed
from mudroom.stage.exclude import choose, named, never_copied, weight
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.source import DirectorySource, OpenSource, is_absence, read_all
from mudroom.stage.stamp import as_recorded, file_clock
from mudroom.stage.view import TOO_DEEP

DEFAULT_LIMIT = 500 * 1024 * 1024
"""Bytes. A larger project is not copied unless the policy raises the limit."""

_GITIGNORE_LIMIT = 1 << 20
"""Bytes. A larger file is not used as a list of patterns."""

HELD = "not in the copy: another program holds {paths} open; close it, then run the command in a new fork"

EMPTY = "not in the copy: {paths} ({why}), which commands see empty"

Choose = Callable[[OpenSource, list[bytes]], tuple[dict[bytes, Entry], list[str]]]
"""Return the project's entries to copy, a directory before its contents, and notes about the choice. The list receives
the directories that another program holds open."""


def chooser(settings: Settings, devices: Collection[int] = ()) -> Choose:
    """Return the choice made by a project's settings (``stage/exclude.py``). ``devices``: device numbers of volumes
    mounted inside, which are copied, too. They are left out if the whole would be too large for a copy."""

    def chosen(source: OpenSource, held: list[bytes]) -> tuple[dict[bytes, Entry], list[str]]:
        deep = set[bytes]()
        items = listed(source, never_copied(settings.copy_exclude), held=held, deep=deep, devices=devices)
        empty: list[bytes] = []
        if devices and settings.copy_limit is not None and weight(items) > settings.copy_limit:
            items, empty = without_volumes(items, source.look(b""))
        read = functools.partial(read_patterns, source)
        items, notes = choose(items, read, limit=settings.copy_limit, gitignore=settings.copy_gitignore)
        if deep:
            tops = sorted({path.partition(b"/")[0] for path in deep})
            notes.append(f"{named(tops)} {TOO_DEEP}are not in the copy")
        if empty:
            notes.append(EMPTY.format(paths=named(empty), why="too large for copy.limit"))
        return items, notes

    return chosen


def without_volumes(items: dict[bytes, Entry], top: Entry | None) -> tuple[dict[bytes, Entry], list[bytes]]:
    """Return the entries without those in mounted volumes, whose mount points stay, and the mount points."""
    kept: dict[bytes, Entry] = {}
    closed, volumes = set[bytes](), list[bytes]()
    for path, entry in items.items():
        if entry.kind == "directory" and parent(path) in closed:
            closed.add(path)
        elif parent(path) not in closed:
            kept[path] = entry
            if entry.kind == "directory" and top is not None and entry.device != top.device:
                closed.add(path)
                volumes.append(path)
    return kept, volumes


def read_patterns(source: DirectorySource, path: bytes) -> bytes | None:
    try:
        return read_all(source, path, _GITIGNORE_LIMIT)
    except OSError as error:
        if isinstance(error, (PermissionError, FileHeld)) or is_absence(error):
            return None  # it has no effect then; git treats it the same way
        raise


def take(
    project: bytes,
    place: bytes,
    *,
    choose: Choose,
    limit: int | None = DEFAULT_LIMIT,
    masked: Collection[bytes] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Copy the chosen project files into the new directory ``place``. Return notes about the choice. ``masked`` files
    are not copied. Raise UsageError, before copying, if the files exceed ``limit`` bytes."""
    started, held = file_clock(), list[bytes]()
    with OpenSource(project) as source:
        items, notes = items_to_copy(source, choose, held, masked, limit)
        os.mkdir(place, 0o700)
        try:
            os.mkdir(place + b"/source", 0o700)
            with Descriptor(open_root(place + b"/source")) as target:
                copied = clone(source, target, items, progress, held)
                top = copy_top(source, target)
            save_snapshot(place, top, items, copied, masked, started)
        except BaseException:
            remove_tree(place)
            raise
    return with_held(notes, held)


def items_to_copy(
    source: OpenSource, choose: Choose, held: list[bytes], masked: Collection[bytes], limit: int | None
) -> tuple[dict[bytes, Entry], list[str]]:
    """Return the project's entries to copy, without the ``masked`` ones, and notes about the choice. Raise UsageError
    if the files exceed ``limit`` bytes."""
    items, notes = choose(source, held)
    items = {path: entry for path, entry in items.items() if path not in masked}
    _check_size(items, limit)
    return items, notes


def copy_top(source: OpenSource, target: int) -> Entry:
    """Give an open directory, the copy's root, the mode of the project's root. Return the project's entry."""
    top = source.look(b"")
    assert top is not None
    disk.set_mode(target, b".", top.mode)
    return top


def with_held(notes: list[str], held: list[bytes]) -> list[str]:
    """Return the notes, with another about the files that another program holds open, if there are any."""
    return [*notes, HELD.format(paths=named(held))] if held else notes


def save_snapshot(
    place: bytes, top: Entry, items: dict[bytes, Entry], copied: set[bytes], masked: Collection[bytes], started: int
) -> None:
    """Write the manifest, which makes a snapshot complete. ``top``: the project root's entry; ``started``: the time
    before its files were read, by the clock that stamps files."""
    if masked:
        with open(place + b"/masked", "wb") as stream:
            stream.write(b"\0".join(sorted(masked)))
    known = {path: as_recorded(entry, started) for path, entry in items.items() if path in copied}
    save_manifest(place, {b"": top, **known})


def _check_size(items: dict[bytes, Entry], limit: int | None) -> None:
    total = weight(items)
    if limit is not None and total > limit:
        raise UsageError(
            f"the project holds {total / 1e6:.0f} MB, more than the {limit / 1e6:.0f} MB that may be copied",
            "raise copy.limit in .mudroom/policy.yaml, or exclude directories with copy.exclude",
        )


def save_manifest(place: bytes, manifest: dict[bytes, Entry]) -> None:
    import msgspec

    safe_open.replace(place + b"/manifest", msgspec.msgpack.encode(manifest), durable=False)


def read_manifest(place: bytes) -> dict[bytes, Entry]:
    """Return the project's entries when the snapshot was taken. Raise MudroomError if it is incomplete or damaged."""
    import msgspec

    try:
        with open(place + b"/manifest", "rb") as stream:
            return msgspec.msgpack.decode(stream.read(), type=dict[bytes, Entry])
    except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError) as error:
        shown = os.fsdecode(place)
        raise MudroomError(f"the snapshot {shown} is damaged: {error}", "forks of it cannot be used") from error


class SnapshotSource:
    """Owner: the caller, in one thread; below a ``Buffer`` it is read with the buffer's lock held."""

    def __init__(self, place: bytes) -> None:
        self._entries = read_manifest(place)
        self._root = open_root(place + b"/source")
        self._below: dict[bytes, dict[bytes, Entry]] | None = None

    def close(self) -> None:
        os.close(self._root)

    def look(self, path: bytes) -> Entry | None:
        return self._entries.get(path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        if self._below is None:
            self._below = {}
            for at, entry in self._entries.items():
                if at:
                    above, _slash, name = at.rpartition(b"/")
                    self._below.setdefault(above, {})[name] = entry
        return dict(self._below.get(path, {}))

    def open(self, path: bytes) -> int:
        return open_file(self._root, path)
