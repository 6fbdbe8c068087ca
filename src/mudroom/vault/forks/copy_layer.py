"""Forks that work in a copy: the changes of the copy, written into a layer.

From then on checkpoints, forks of the fork and applies treat it like an overlay's layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.core.clock import EditWindow
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry, same_shape
from mudroom.core.tree.path import show
from mudroom.errors import ForkMoved
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.layers.union import OneLayer
from mudroom.stage.originals.collection import collect
from mudroom.stage.source import Source
from mudroom.stage.views.copy_view import CopyView, is_as_copied
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.record import ForkRecord, save
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

SEALING = b"/sealing"
"""In the copy's directory, from the first write to the layer until the copy stands on it. After a crash in between, the
record may name the layer's files while the copy's are still the valid ones.
"""


def seal_copy(vault: Vault, fork: Fork, *, as_reviewed: bool = False) -> None:
    """Write the changes of the copy into the fork's upper layer and seal it. Costs as much as was changed.

    ``as_reviewed``: raise ForkMoved if the copy is not as the record says; no change was made then.
    """
    tree, mark = fork.upper, fork.copy_place + SEALING
    cut_off = os.path.exists(mark)
    with OpenFork(vault, fork) as opened:
        view = CopyView(fork.copy_place, opened.lower)
        differences = list(view.differences(opened.lower))
        if as_reviewed:
            _check(fork, opened, view, _looks_like if cut_off else is_as_copied)
        if not differences:
            if cut_off:
                os.unlink(mark)
            return
        if cut_off and os.path.isdir(tree):
            remove_tree(tree)
        with open(mark, "wb"):
            pass
        os.makedirs(tree, 0o700, exist_ok=True)  # an overlay that could not be mounted has left an empty directory
        view.seal(tree)
    _name_layer_in_record(fork, tree)
    vault.seal(fork)
    with OpenFork(vault, fork) as opened:
        view.rebase(opened.lower)
    os.unlink(mark)


def _looks_like(a: Entry | None, b: Entry | None) -> bool:
    """``same_stamp`` of a file and its copy, which has another inode. For other kinds times are ignored."""
    if a is None or b is None or not same_shape(a, b):
        return a is b
    return a.kind != "file" or (a.size, a.mtime) == (b.size, b.mtime)


def _check(fork: Fork, opened: OpenFork, view: CopyView, is_same: Callable[[Entry | None, Entry | None], bool]) -> None:
    """Collect again and compare. A file that was only touched is no change."""
    record = fork.record
    reviewed = record.changeset.changes if record is not None else ()
    started = record.started if record is not None else 0
    now = collect(opened.apart_from_git(view), opened.staged(), opened.lower, opened.ground(), EditWindow(started))
    before, after = ({change.path: change.staged for change in changes} for changes in (reviewed, now.changes))
    for path in sorted({*before, *after}):
        if path not in before or path not in after or not is_same(before[path], after[path]):
            raise ForkMoved(path, show(path))


def _name_layer_in_record(fork: Fork, tree: bytes) -> None:
    """Replace the copy's entries in the record by those of the layer's files."""
    record = fork.record
    if record is None:
        return
    save(fork.record_path, as_in_layer(record, tree), durable=False)


def as_in_layer(record: ForkRecord, tree: bytes) -> ForkRecord:
    """Return a record of the same changes with the entries of a layer's files."""
    with OneLayer(tree) as layer:
        changes = tuple(_in_layer(change, layer) for change in record.changeset.changes)
    return record._replace(changeset=record.changeset._replace(changes=changes))


def _in_layer(change: Change, layer: Source) -> Change:
    entry = layer.look(change.path) if change.staged is not None and change.path else None
    if entry is None or change.staged is None:
        return change
    return change._replace(staged=entry._replace(mode=change.staged.mode))  # the layer's may have more bits
