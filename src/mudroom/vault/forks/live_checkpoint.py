"""Checkpoints while the fork's upper layer is mounted.

A mounted layer cannot be sealed, so its contents are copied. A staged copy's changes are written into a layer, as when
it is sealed, but the copy does not stand on that layer.

The caller stops every process that could write to the layer. The fork itself stays unchanged: its upper layer remains
in use, and the checkpoint has its own layer. If that layer equals the last automatic checkpoint's layer, it is shared:
then commands that change nothing, or never start, use no disk space and push out no other checkpoint.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from mudroom.core.retention import surplus_checkpoints
from mudroom.core.tree import stack
from mudroom.core.tree.entry import Entry, same_shape
from mudroom.core.tree.stack import Checkpoint
from mudroom.stage import xattr
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.flatten import flatten
from mudroom.stage.layers.fuse_marks import convert_fuse_layer
from mudroom.stage.layers.layer import open_staged, read_directory
from mudroom.stage.layers.shown import carry, own_paths, shown_place, take
from mudroom.stage.source import is_absence, same_bytes
from mudroom.vault.forks.collection import MOST_TRIES
from mudroom.vault.forks.copy_layer import as_in_layer, copy_view
from mudroom.vault.forks.flatten import merge_originals
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.stacking import require_free, upper_is_empty
from mudroom.vault.record import save
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.store import Vault


def checkpoint_copy(vault: Vault, fork: Fork, name: str, time: int, keep: int | None) -> Checkpoint:
    """Make a checkpoint in a running fork. Raise UsageError if the name is taken or not allowed.

    ``keep``: how many automatic checkpoints to keep; None for a checkpoint that the user named.
    """
    require_free(fork, name)
    layers = layers_now(vault, fork, _last_copy(fork) if keep is not None else None)
    state = stack.with_checkpoint(fork.state, name, time, automatic=keep is not None)
    point = state.checkpoints[-1]._replace(layers=layers)
    state = state._replace(checkpoints=(*state.checkpoints[:-1], point))
    for old in surplus_checkpoints(state, keep) if keep is not None else ():
        state = stack.without_checkpoint(state, old)
    fork.save(state)
    return point


def layers_now(vault: Vault, fork: Fork, last: str | None = None) -> tuple[str, ...]:
    """Return the names of layers with the fork's present files, which does not change: the writable layer is copied.
    ``last``: the layer to use if it equals the copy."""
    return fork.state.layers if upper_is_empty(fork) else (*fork.state.layers, _make_layer(vault, fork, last))


def _last_copy(fork: Fork) -> str | None:
    """Return the last automatic checkpoint's top layer, if the checkpoint stands on the same layers as the fork."""
    below = fork.state.layers
    last = next((point for point in reversed(fork.state.checkpoints) if point.automatic), None)
    return last.layers[-1] if last is not None and last.layers and last.layers[:-1] == below else None


def _make_layer(vault: Vault, fork: Fork, last: str | None) -> str:
    if last is None:
        return _copy_layer(vault, fork)
    last_tree = vault.layer(last) + b"/tree"
    if not fork.has_copy and not _is_by_fuse(fork):
        return last if _is_same(last_tree, fork.upper) else _copy_layer(vault, fork)
    copy = _copy_layer(vault, fork)
    if not _is_same(last_tree, vault.layer(copy) + b"/tree"):
        return copy
    vault.throw_away(vault.layer(copy))
    vault.empty_trash()
    return last


def _is_same(one: bytes, other: bytes) -> bool:
    """Whether two layers at rest are equal, to the byte: a memory-mapped file can change without new times.

    Names, modes and sizes are compared first, because that finds most differences soon.
    """
    with ExitStack() as opened:
        roots: list[int] = []
        for path in (one, other):
            roots.append(open_layer(path))
            opened.callback(os.close, roots[-1])
        inodes: dict[int, int] = {}
        files: list[bytes] = []
        pending = [b""]
        while pending:
            path = pending.pop()
            a, b = (read_directory(root, path) for root in roots)
            if a is None or b is None or (a.gone, a.opaque) != (b.gone, b.opaque):
                return False
            entries, others = _without_sockets(a.entries), _without_sockets(b.entries)
            if entries.keys() != others.keys():
                return False
            for name, entry in entries.items():
                place = path + b"/" + name if path else name
                if not _looks_same(entry, others[name], inodes):
                    return False
                if entry.kind in ("directory", "file"):
                    (pending if entry.kind == "directory" else files).append(place)
        return all(_has_same_content(roots, path) for path in files)


def _without_sockets(entries: dict[bytes, Entry]) -> dict[bytes, Entry]:
    return {name: entry for name, entry in entries.items() if entry.kind != "socket"}  # copies do not include sockets


def _looks_same(one: Entry, other: Entry, inodes: dict[int, int]) -> bool:
    """Whether two entries look the same. ``inodes``: maps hard-linked files in one layer to those in the other."""
    if not same_shape(one, other) or (one.uid, one.gid) != (other.uid, other.gid):
        return False
    if one.kind != "file":
        return True
    if one.links > 1 and inodes.setdefault(one.inode, other.inode) != other.inode:
        return False
    return (one.size, one.mtime, one.links) == (other.size, other.mtime, other.links)


def _has_same_content(roots: list[int], path: bytes) -> bool:
    with ExitStack() as opened:
        descriptors: list[int] = []
        for root in roots:
            descriptors.append(open_staged(root, path))
            opened.callback(os.close, descriptors[-1])
        return xattr.user(descriptors[0]) == xattr.user(descriptors[1]) and same_bytes(*descriptors)


def _is_by_fuse(fork: Fork) -> bool:
    """Return whether the fork's upper layer is mounted by fuse-overlayfs, and has its marks."""
    note = mount_note(fork)
    return note is not None and note.writable and note.kind == "fuse"


def _copy_layer(vault: Vault, fork: Fork) -> str:
    """Return a new layer with the fork's changes.

    In a mounted fork the user is not stopped: each file is consistent, but not all are from the same moment.
    """
    tries = 1 if mount_note(fork) is None else MOST_TRIES
    while True:
        tries -= 1
        try:
            return _copy_once(vault, fork)
        except OSError as error:
            if not tries or not is_absence(error):
                raise


def _copy_once(vault: Vault, fork: Fork) -> str:
    name = vault.new_layer()
    try:
        _fill(vault, fork, vault.layer(name))
    except BaseException:
        vault.throw_away(vault.layer(name))
        raise
    return name


def _fill(vault: Vault, fork: Fork, place: bytes) -> None:
    """Copy the fork's changes to the new layer at ``place``."""
    upper = vault.layer(fork.state.upper)
    os.mkdir(place + b"/tree", 0o700)
    if fork.has_copy:
        with OpenFork(vault, fork) as opened:
            copy_view(fork, opened.lower).bring_into(place + b"/tree", opened.lower)
    else:
        flatten([fork.upper], place + b"/tree", copying=True)
        if _is_by_fuse(fork):
            convert_fuse_layer(place + b"/tree")
    merge_originals([upper], place)
    carry([upper], place)

    def shown_of() -> bytes:
        """Return the directory with the shown secrets that count for the copy."""
        own = shown_place(place)
        return own if os.path.isdir(own) else fork.shown

    with OpenFork(vault, fork) as opened:
        paths = opened.shown_paths
        if paths:
            take(place, paths - own_paths(place), shown_of(), opened.visible)
    record = fork.record
    if record is not None:
        save(place + b"/record", as_in_layer(record, place + b"/tree", shown_of()), durable=True)
