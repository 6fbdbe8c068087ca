"""Slot content: brought from the fork, durably, and returned if it was not used.

A file is moved where that is possible, else copied. Therefore the fork is not whole while its slots are filled, and
``plan.prepare`` lists the content of the slots.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from mudroom.core.merge.operations import Op
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Remark
from mudroom.core.tree.entry import Entry, difference_in_words
from mudroom.core.tree.landing_form import is_reviewed
from mudroom.core.tree.path import show
from mudroom.errors import ForkMoved
from mudroom.stage import disk
from mudroom.stage.beneath import look, open_layer, open_root
from mudroom.stage.layers.closed_directory import LastEntered, entered, look_through
from mudroom.stage.layers.union import staged_source
from mudroom.stage.source import walk as walk_source
from mudroom.vault.apply.execution import FEW
from mudroom.vault.apply.form import LandingForm
from mudroom.vault.apply.slot_directory import open_slots, remove_empty_slots
from mudroom.vault.apply.tree import (
    discard,
    fill_merged,
    fill_slot,
    first_difference,
    move_tree,
    settle,
    sync_path,
    walk,
)
from mudroom.vault.record import ApplyRecord


def fill_slots(
    record: ApplyRecord, merged: bytes, sources: Mapping[bytes, bytes], *, verify_fork: bool
) -> tuple[ApplyRecord, list[Remark]]:
    """Put the new files into the slots, durably. Return the record with the entries that are now in the slots, and
    remarks about what they could not be given. ``sources``: as for ``LandingForm``."""
    trees, ops = dict(record.trees), list[Op]()
    with slots_of(record) as slots, _fork_of(record) as fork, _form_of(record, sources) as forms:
        filled = set(disk.names(slots))
        fill = functools.partial(fill_slot, record.contents, fork, slots, filled)
        # Of the fork now: the record's device numbers may be from an earlier mount. Equal inodes can be a coincidence.
        device = disk.stat_at(None, record.contents[0]).st_dev if record.contents else 0
        for op in record.ops:
            if not op.slot or op.new is None:
                ops.append(op)
                continue
            if op.whole:
                fork.leave()  # the modes of directories below are read
            if verify_fork and op.whole and op.new.kind == "directory":
                _verify_tree(record.contents, op, trees[op.slot])
            entry = fill_merged(merged, slots, op) if op.merged else fill(op)
            slot = b"%d" % op.slot
            entry = forms.give(slots, op, entry, trees.get(op.slot, {}))
            moved = (entry.device, entry.inode) == (device, op.new.inode)
            if op.whole and entry.kind == "directory" and not moved:
                trees[op.slot] = dict(walk((slots, slot), ours=True))  # a copy has other inodes
            ops.append(op._replace(new=entry))
        fork.leave()  # before the changes to the fork are made durable
        _make_durable(slots, ops)
    return record._replace(ops=tuple(ops), trees=trees), forms.remarks


@contextmanager
def slots_of(record: ApplyRecord) -> Iterator[int]:
    with Descriptor(open_slots(record)) as slots:
        yield slots


@contextmanager
def _form_of(record: ApplyRecord, sources: Mapping[bytes, bytes]) -> Iterator[LandingForm]:
    with closing(LandingForm(open_root(record.project), sources)) as forms:
        yield forms


@contextmanager
def _fork_of(record: ApplyRecord) -> Iterator[LastEntered]:
    """Yield the directories in the layer from which files are moved into the slots. A fork with several layers has
    none: its files are copied."""
    moves = len(record.contents) == 1 and any(
        op.slot and op.new is not None and not op.merged and not op.copy for op in record.ops
    )
    layer = open_layer(record.contents[0]) if moves else -1
    try:
        with LastEntered(layer) as fork:
            yield fork
    finally:
        if moves:
            os.close(layer)


def _verify_tree(contents: Sequence[bytes], op: Op, tree: dict[bytes, Entry]) -> None:
    # A Union would list every directory above, which is quadratic in their names.
    with staged_source(contents) as staged:
        below = ((name[len(op.path) + 1 :], entry) for name, entry in walk_source(staged, op.path))
        path = first_difference(below, tree, is_reviewed)
        if path is not None:
            whole = op.path + b"/" + path
            why = difference_in_words(tree.get(path), staged.look(whole))
            raise ForkMoved(whole, show(whole), why=why)


def _make_durable(slots: int, ops: list[Op]) -> None:
    filled = [op for op in ops if op.slot and op.new is not None]
    if len(filled) > FEW or any(op.whole for op in filled):
        disk.sync_filesystem(slots)
        return
    try:
        for op in filled:
            if op.new is not None and op.new.kind == "file":
                sync_path(slots, b"%d" % op.slot)
    except PermissionError:  # its owner may not read it
        disk.sync_filesystem(slots)
        return
    if filled:
        disk.sync(slots)


def return_slots(record: ApplyRecord) -> None:
    """Move files from the slots back to the fork; remove copies, complete or partial.

    Only for operations that were not done: their slots hold no file from the project.
    """
    if not os.path.isdir(record.slots):  # interrupted before they were made, or after they were removed
        remove_empty_slots(record)
        return
    if not record.contents:  # the fork had lost its files, so none was moved into a slot
        remove_empty_slots(record)
        return
    os.makedirs(record.contents[0], 0o700, exist_ok=True)  # lost meanwhile: keep the files in the slots
    moved = False
    with Descriptor(open_slots(record)) as slots, Descriptor(open_layer(record.contents[0])) as content:
        for op in record.ops:
            if not op.slot or op.new is None:
                continue
            name = b"%d" % op.slot
            discard((slots, name + b".part"))
            if op.merged or len(record.contents) > 1:
                discard((slots, name))
            elif look_through(content, op.path) is not None:
                _settle_staged(content, op.path, op.new)
                discard((slots, name))
            elif look(slots, name) is not None:
                above, _slash, last = op.path.rpartition(b"/")
                with entered(content, above) as opened:
                    move_tree((slots, name), (opened, last), op.new)
                moved = True
        if moved:
            disk.sync_filesystem(slots)  # before the plan goes, which lists the content of the slots
    remove_empty_slots(record)


def _settle_staged(content: int, path: bytes, entry: Entry) -> None:
    above, _slash, last = path.rpartition(b"/")
    with entered(content, above) as opened:
        settle((opened, last), entry)
