"""Forks that work in a copy: the copy's changes, written into a layer.

From then on checkpoints, child forks and applies treat it like an overlay's layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from mudroom.core.clock import EditWindow
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry, same_shape
from mudroom.core.tree.path import show
from mudroom.errors import ForkMoved, MudroomError
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.layers.shown import PATHS, TREE, entries_of, own_paths, read_paths, take
from mudroom.stage.layers.union import OneLayer
from mudroom.stage.originals.collection import collect
from mudroom.stage.source import Source
from mudroom.stage.view import RawDifference
from mudroom.stage.views.copy_view import CopyView, is_as_copied
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.record import ForkRecord, save
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.masked_secrets import masked_of
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_all

SEALING = b"/sealing"
"""File in the copy's directory, from the first write to the layer until the copy stands on it. After a crash in
between, the record may name the layer's files although the copy's files are still valid."""

_TRIES = 5


def copy_view(fork: Fork, lower: Source) -> CopyView:
    """Return the view on a fork's copy, which is in the vault, or where the fork is mounted."""
    note = mount_note(fork)
    if note is None or not note.is_content:
        return CopyView(fork.copy_place, lower)
    return CopyView(fork.copy_place, lower, work=note.place, identity=note.identity)


def leave_copy(vault: Vault, fork: Fork) -> None:
    """Write the copy's changes into the fork's upper layer, which then replaces the copy.

    The user may still be working in the copy: the layer is written again until the copy has not changed meanwhile. The
    upper layer was sealed when the copy was made, and no command has written to it since. Raise MudroomError if the
    copy keeps changing. After a crash or an error, the copy is still the fork's content.
    """
    tree = fork.upper
    for _try in range(_TRIES):
        with open(fork.copy_place + SEALING, "wb"):
            pass
        if os.path.isdir(tree):
            remove_tree(tree)
        os.mkdir(tree, 0o700)
        with OpenFork(vault, fork) as opened:
            view = copy_view(fork, opened.lower)
            before = list(view.differences(opened.lower))
            view.bring_into(tree, opened.whole)
            if _are_same(before, list(view.differences(opened.lower))):
                break
    else:
        raise MudroomError(f"the files of {fork.name} are being changed", "try again when nothing writes to them")
    sync_all(vault.path)  # before the copy goes
    _name_layer_in_record(fork, tree)
    os.unlink(fork.copy_place + b"/manifest")
    vault.throw_away(fork.copy_place)
    vault.empty_trash()


def _are_same(before: Sequence[RawDifference], after: Sequence[RawDifference]) -> bool:
    """Return whether two lists of differences show an unchanged copy."""
    return len(before) == len(after) and all(
        one.path == other.path and (one.staged is other.staged or is_as_copied(one.staged, other.staged))
        for one, other in zip(before, after, strict=True)
    )


def seal_copy(
    vault: Vault,
    fork: Fork,
    *,
    as_reviewed: bool = False,
    secrets: frozenset[bytes] = frozenset(),
) -> None:
    """Write the copy's changes into the fork's upper layer and seal it. Costs as much as was changed. The layer is
    synced, because the state and the manifest that name its files are: a power loss would leave them empty.

    Secrets that its commands were shown (in the vault's mask or in ``secrets``) go to the fork's shown secrets.
    ``as_reviewed``: raise ForkMoved if the copy differs from the record; then no change was made.
    """
    tree, mark = fork.upper, fork.copy_place + SEALING
    cut_off = os.path.exists(mark)
    with OpenFork(vault, fork) as opened:
        view = copy_view(fork, opened.lower)
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
        whole = opened.whole
        view.bring_into(tree, whole)
        paths = secrets.union(vault.mask.paths, vault.mask.shown, read_paths(fork.shown + PATHS))
        layer = tree.removesuffix(TREE)
        take(layer, paths - masked_of(fork.path).at(fork.state) - own_paths(layer), fork.shown, whole)
    sync_all(vault.path)  # before the record names the layer's files
    _name_layer_in_record(fork, tree)
    vault.seal(fork, durable=True)
    with OpenFork(vault, fork) as opened:
        view.rebase(opened.lower)
    os.unlink(mark)


def _looks_like(a: Entry | None, b: Entry | None) -> bool:
    """Compare a file and its copy as ``same_stamp`` does, but ignore the inode. For other kinds times are ignored."""
    if a is None or b is None or not same_shape(a, b):
        return a is b
    return a.kind != "file" or (a.size, a.mtime) == (b.size, b.mtime)


def _check(fork: Fork, opened: OpenFork, view: CopyView, is_same: Callable[[Entry | None, Entry | None], bool]) -> None:
    """Collect again and compare. A file that was only touched is not a change."""
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
    save(fork.record_path, as_in_layer(record, tree, fork.shown), durable=True)


def as_in_layer(record: ForkRecord, tree: bytes, shown: bytes) -> ForkRecord:
    """Return a record of the same changes with the entries of a layer's files. ``shown``: directory with the shown
    secrets over that layer, whose entries take precedence; empty if there are none."""
    secrets = dict(entries_of(shown)) if shown else {}
    with OneLayer(tree) as layer:
        changes = tuple(
            change._replace(staged=secrets[change.path]) if change.path in secrets else _in_layer(change, layer)
            for change in record.changeset.changes
        )
    return record._replace(changeset=record.changeset._replace(changes=changes))


def _in_layer(change: Change, layer: Source) -> Change:
    entry = layer.look(change.path) if change.staged is not None and change.path else None
    if entry is None or change.staged is None:
        return change
    return change._replace(staged=entry._replace(mode=change.staged.mode))  # the layer's may have more bits
