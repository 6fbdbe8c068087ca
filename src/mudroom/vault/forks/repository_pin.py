"""HEAD and its branch are pinned in a fork that has changed its repository.

A fork sees the live project. Once it has its own index or refs, a commit by the user would move HEAD under them: the
fork's next commit would be made from the old index on the new HEAD, and revert the user's commit. So the present HEAD
and its branch are copied into the fork's layer, as originals that are not changes.

A ref that the fork has packed (``git gc``) is no longer a file in its layer, and a commit by the user would show
through in its place. So packed refs that the fork has changed become files in its layer again.

A repository without changes is the opposite case: its refreshed index is removed from the layer, so that the fork
follows the project again. This is not done above a sealed layer with a repository, which would show through.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mudroom.core.clock import EditWindow
from mudroom.core.git.repository_state import is_ref_name, parse_packed_refs
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ancestors, is_below
from mudroom.core.tree.stack import LIVE
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.layer import LayerWriter, remove_at
from mudroom.stage.originals.ground import Ground
from mudroom.stage.source import Source, is_absence, read_all
from mudroom.stage.stamp import is_outside
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork

_GIT = b".git"
_HEAD, _INDEX, _PACKED = b".git/HEAD", b".git/index", b".git/packed-refs"
_OPAQUE = "user.overlay.opaque"
_MOST_UNPACKED = 10_000
_REF_LIMIT, _PACKED_LIMIT = 4096, 64 << 20
_REF_MODE = 0o644


def shows_git_below(layer: bytes) -> bool:
    """Return whether a layer has an empty ``.git`` directory that shows all of the one below. Each ``git status``
    leaves one, since it makes and removes a lock file."""
    place = layer + b"/" + _GIT
    try:
        with os.scandir(place) as scan:
            if next(scan, None) is not None:
                return False
        return _OPAQUE not in os.listxattr(place, follow_symlinks=False)
    except OSError:
        return False  # missing, a file, or closed to us


def settle_repository(fork: Fork, opened: OpenFork, changeset: Changeset, window: EditWindow) -> None:
    """Pin the project's repository, or let it follow the project. Call it after each collection, with the fork's lock
    held and no view mounted. ``window``: the last command's, as for ``collect``."""
    base = opened.base
    if fork.state.base != LIVE or fork.is_copy or not os.path.isdir(fork.upper):
        return
    entry = base.look(_GIT)
    if entry is None or entry.kind != "directory" or base.look(_HEAD) is None:
        return
    changed = {change.path for change in changeset.changes if is_below(change.path, _GIT)}
    is_sealed = any(os.path.lexists(layer + b"/" + _GIT) and not shows_git_below(layer) for layer in fork.sealed)
    if not changed and not is_sealed:
        _follow(fork)
    elif not {_GIT, _HEAD} & changed:
        _pin(fork, opened, changed, window)


def _follow(fork: Fork) -> None:
    with Descriptor(open_layer(fork.upper)) as root:
        remove_at(root, _GIT)


def _pin(fork: Fork, opened: OpenFork, changed: set[bytes], window: EditWindow) -> None:
    staged, base, ground = opened.staged(), opened.base, opened.ground()
    if _PACKED in changed:
        _unpack(fork, opened)
    if staged.look(_INDEX) is None:
        return  # the index follows the project, and so does HEAD
    head = _settled_file(base, _HEAD, window)
    if head is None or not head[1].startswith(b"ref: refs/heads/"):
        return
    branch = _GIT + b"/" + head[1][5:].strip()
    if not is_below(branch, b".git/refs/heads") or b".." in branch.split(b"/"):
        return
    pins = [(_HEAD, *head)]
    if branch not in changed:
        value = _settled_file(base, branch, window)
        if value is not None:
            pins.append((branch, *value))
        elif base.look(branch) is None and _PACKED not in changed:
            pins += _packed(base, branch, window)
    pins = [pin for pin in pins if staged.look(pin[0]) is None and _is_original(ground, *pin)]
    if pins:
        for path, entry, data in pins:
            ground.originals.keep(path, entry, data if entry is not None else None)
        ground.originals.save()
        files = {path: (data, entry.mode if entry is not None else _REF_MODE) for path, entry, data in pins}
        _write(fork, opened, files)


def _is_original(ground: Ground, path: bytes, entry: Entry | None, data: bytes) -> bool:
    """Return whether a pin is not a change by the fork: its original is not known yet, or is the same."""
    kept = ground.originals.get(path)
    if kept is None or kept.entry is None:
        return kept is None or entry is None
    return ground.read_original(path, kept.entry, _REF_LIMIT) == data


def _unpack(fork: Fork, opened: OpenFork) -> None:
    """Write the packed refs that the fork has changed, and its HEAD's ref, as files in its layer."""
    staged = opened.staged()
    sides = [_read(source, _PACKED) for source in (opened.base, opened.merged())]
    before, after = (parse_packed_refs(data) for data in sides)
    names = [name for name, value in after.items() if before.get(name) != value]
    head = _read(opened.merged(), _HEAD).removeprefix(b"ref: ").strip()
    names += [head] if head in after and head not in names else []
    valid = [name for name in names[:_MOST_UNPACKED] if is_ref_name(name)]
    files = {_GIT + b"/" + name: (after[name] + b"\n", _REF_MODE) for name in valid}
    _write(fork, opened, {path: files[path] for path in files if staged.look(path) is None})


def _read(source: Source, path: bytes) -> bytes:
    try:
        return read_all(source, path, _PACKED_LIMIT) or b""
    except OSError as error:
        if is_absence(error):
            return b""
        raise


def _settled_file(base: Source, path: bytes, window: EditWindow) -> tuple[Entry | None, bytes] | None:
    """Return a file's entry and content, or None if it may have changed since the command began."""
    entry = base.look(path)
    if entry is None or entry.kind != "file" or not is_outside(window, entry.ctime):
        return None
    try:
        data = read_all(base, path, _PACKED_LIMIT if path.endswith(b"packed-refs") else _REF_LIMIT)
    except OSError as error:
        if is_absence(error):
            return None
        raise
    return None if data is None else (entry, data)


def _packed(base: Source, branch: bytes, window: EditWindow) -> list[tuple[bytes, Entry | None, bytes]]:
    packed = _settled_file(base, b".git/packed-refs", window)
    value = parse_packed_refs(packed[1]).get(branch[len(_GIT) + 1 :]) if packed is not None else None
    return [(branch, None, value + b"\n")] if value is not None else []


def _write(fork: Fork, opened: OpenFork, files: Mapping[bytes, tuple[bytes, int]]) -> None:
    """Write contents with their modes into the fork's upper layer. Directories that the fork has removed are made again
    (``git pack-refs`` prunes them). A path below a file is left out."""
    merged = opened.merged()
    root = open_layer(fork.upper)
    writer = LayerWriter(root, opened.lower)
    kinds: dict[bytes, str] = {}

    def is_directory(path: bytes) -> bool:
        if path not in kinds:
            entry = merged.look(path)
            kinds[path] = "directory" if entry is None else entry.kind
            if entry is None:
                writer.directory(path, 0o755)
        return kinds[path] == "directory"

    with Descriptor(root):
        for path, (data, mode) in sorted(files.items()):
            if all(map(is_directory, ancestors(path))):
                kinds[path] = "file"
                writer.data(path, data, mode=mode)
        writer.finish()
