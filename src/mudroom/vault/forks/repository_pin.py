"""HEAD and its branch stand still in a fork that has changed its repository.

A fork sees the live project. Once it has an index or refs of its own, a commit of the user's would move HEAD under
them: the fork's next commit would be made from the old index on the new HEAD, and take back the user's commit. So the
present HEAD and its branch are copied into the fork's layer, as originals that are no change.

A repository without changes is the other case: its refreshed index is removed from the layer, so that the fork follows
the project again.
"""

from __future__ import annotations

import os

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import is_below
from mudroom.core.tree.stack import LIVE
from mudroom.stage.beneath import open_root
from mudroom.stage.layers.layer import LayerWriter, remove_at
from mudroom.stage.originals.ground import Ground
from mudroom.stage.source import Source, is_absence, read_all
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork

_GIT = b".git"
_HEAD, _INDEX = b".git/HEAD", b".git/index"
_REF_LIMIT, _PACKED_LIMIT = 4096, 64 << 20


def settle_repository(fork: Fork, opened: OpenFork, changeset: Changeset, started: int) -> None:
    """Pin the repository of the project, or let it follow the project. Call it after each collection, with the fork's
    lock held and no view mounted. ``started``: of the last command, as for ``collect``."""
    base = opened.base
    if fork.state.base != LIVE or fork.is_copy or not os.path.isdir(fork.upper):
        return
    entry = base.look(_GIT)
    if entry is None or entry.kind != "directory" or base.look(_HEAD) is None:
        return
    changed = {change.path for change in changeset.changes if is_below(change.path, _GIT)}
    if not changed:
        _follow(fork)
    elif not {_GIT, _HEAD} & changed:
        _pin(fork, opened, changed, started)


def _follow(fork: Fork) -> None:
    root = open_root(fork.upper)
    try:
        if os.path.lexists(b"/proc/self/fd/%d/.git" % root):
            remove_at(root, _GIT)
    finally:
        os.close(root)


def _pin(fork: Fork, opened: OpenFork, changed: set[bytes], started: int) -> None:
    staged, base, ground = opened.staged(), opened.base, opened.ground()
    if staged.look(_INDEX) is None:
        return  # the index follows the project, and so does HEAD
    head = _settled_file(base, _HEAD, started)
    if head is None or not head[1].startswith(b"ref: refs/heads/"):
        return
    branch = _GIT + b"/" + head[1][5:].strip()
    if not is_below(branch, b".git/refs/heads") or b".." in branch.split(b"/") or branch in changed:
        return
    pins = [(_HEAD, *head)]
    value = _settled_file(base, branch, started)
    if value is not None:
        pins.append((branch, *value))
    elif base.look(branch) is None:
        pins += _packed(base, branch, started)
    pins = [pin for pin in pins if staged.look(pin[0]) is None and ground.originals.get(pin[0]) is None]
    if pins:
        _write(fork, opened.lower, ground, pins)


def _settled_file(base: Source, path: bytes, started: int) -> tuple[Entry | None, bytes] | None:
    """Return a file's entry and content, None unless it is as it was when the command began."""
    entry = base.look(path)
    if entry is None or entry.kind != "file" or entry.ctime >= started:
        return None
    try:
        data = read_all(base, path, _PACKED_LIMIT if path.endswith(b"packed-refs") else _REF_LIMIT)
    except OSError as error:
        if is_absence(error):
            return None
        raise
    return None if data is None else (entry, data)


def _packed(base: Source, branch: bytes, started: int) -> list[tuple[bytes, Entry | None, bytes]]:
    from mudroom.core.git.repository_state import parse_packed_refs

    packed = _settled_file(base, b".git/packed-refs", started)
    value = parse_packed_refs(packed[1]).get(branch[len(_GIT) + 1 :]) if packed is not None else None
    return [(branch, None, value + b"\n")] if value is not None else []


def _write(fork: Fork, lower: Source, ground: Ground, pins: list[tuple[bytes, Entry | None, bytes]]) -> None:
    for path, entry, data in pins:
        ground.originals.keep(path, entry, data if entry is not None else None)
    ground.originals.save()
    root = open_root(fork.upper)
    try:
        writer = LayerWriter(root, lower)
        for path, entry, data in pins:
            writer.data(path, data, mode=entry.mode if entry is not None else 0o644)
        writer.finish()
    finally:
        os.close(root)
