"""Changes that an apply discards from a fork without landing them, because the project's version was chosen.

The fork has the only copy. So before such an apply the fork gets a checkpoint, and its records are kept beside the
plan. They are hard links: a record is replaced when it changes, never written in place.

    applies/<uN>/fork/      record, landed, kept/, resolutions

Undo rolls the fork back to the checkpoint and restores these records. The caller holds the vault's lock and the fork's
lock.
"""

from __future__ import annotations

import os

from mudroom.core.tree.change import Remark
from mudroom.core.tree.stack import Checkpoint, free_name, rolled_back
from mudroom.stage import disk
from mudroom.stage.layers.landed import KEPT, LANDED, add_landed, load_landed
from mudroom.vault.conflict.resolution import RESOLUTIONS, keep_resolutions, load_resolutions
from mudroom.vault.forks import stacking
from mudroom.vault.forks.review import forget
from mudroom.vault.record import ApplyRecord
from mudroom.vault.store.fork import Fork, load_record
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_directory

GONE = "was not restored: the fork, or its checkpoint from before the apply, is gone"
SINCE = "is restored as it was before the apply; its later state is the checkpoint"
_BOOKS = b"/fork"
_RECORD = b"/record"
_UNRECORDED = "was not restored: what the apply kept of its records is missing"


def save_for_undo(vault: Vault, fork: Fork, place: bytes, time: int) -> Checkpoint:
    """Save the fork's records and make a checkpoint, before changes are discarded. ``place``: the apply's directory."""
    point = stacking.checkpoint(vault, fork, free_name(fork.state, "applied"), time, automatic=True)
    books = place + _BOOKS
    os.mkdir(books, 0o700)
    for name in (_RECORD, LANDED, RESOLUTIONS):
        if os.path.exists(fork.path + name):
            os.link(fork.path + name, books + name)
    if os.path.isdir(fork.path + KEPT):
        _link_all(fork.path + KEPT, books + KEPT)
    sync_directory(books)
    sync_directory(place)
    return point


def _link_all(source: bytes, target: bytes) -> None:
    os.makedirs(target, mode=0o700, exist_ok=True)
    for name in os.listdir(source):
        if not os.path.lexists(target + b"/" + name):
            os.link(source + b"/" + name, target + b"/" + name)
    sync_directory(target)


def find_holder(vault: Vault, record: ApplyRecord) -> Fork | None:
    """Return the fork that has the checkpoint, under its current name, or None."""
    for fork in vault.forks():
        state = fork.state_or_none
        if state is not None and record.checkpoint in state.checkpoints:
            return vault.fork(fork.name)
    return None


def restore_dropped(vault: Vault, fork: Fork | None, record: ApplyRecord, place: bytes) -> tuple[Remark, ...]:
    """Restore the fork's state from before the apply, including its decisions. Repeatable."""
    point = record.checkpoint
    if fork is None or point is None:
        return tuple(Remark(path, GONE) for path in record.dropped)
    books = place + _BOOKS
    kept_record = load_record(books + _RECORD)
    if kept_record is None:  # removed by hand: an error would stop every later apply, whose first step is this function
        return tuple(Remark(path, _UNRECORDED) for path in record.dropped)
    current, resolutions = load_landed(fork.path + LANDED), load_resolutions(fork)
    before = _roll_back(vault, fork, point, record.started)
    _restore_file(books + _RECORD, fork.record_path)
    changed = {change.path for change in kept_record.changeset.changes}
    if os.path.isdir(books + KEPT):
        _link_all(books + KEPT, fork.path + KEPT)
    rows = load_landed(books + LANDED) | {path: row for path, row in current.items() if path not in changed}
    if os.path.exists(fork.path + LANDED):
        os.unlink(fork.path + LANDED)
    if rows:
        add_landed(fork.path + LANDED, rows)
    decided = load_resolutions(Fork(fork.name, books, vault.path))
    keep_resolutions(fork, resolutions | {path: decided[path] for path in record.dropped if path in decided})
    forget(fork)
    return (Remark(os.fsencode(fork.name), f"{SINCE} {before.name}"),) if before is not None else ()


def is_reset(fork: Fork) -> bool:
    """Whether the fork stands on the project itself, without changes."""
    return not fork.state.layers and stacking.upper_is_empty(fork)


def _roll_back(vault: Vault, fork: Fork, point: Checkpoint, time: int) -> Checkpoint | None:
    """Roll back to the checkpoint. A fork that was reset and is empty needs no checkpoint for its present state."""
    state = fork.state
    if not is_reset(fork):
        return stacking.rollback(vault, fork, point.name, time)
    fork.save(rolled_back(state, point, vault.new_layer(durable=True)))
    sync_directory(fork.path)  # before the dropped layer goes
    vault.throw_away(vault.layer(state.upper))
    vault.empty_trash()
    return None


def _restore_file(source: bytes, target: bytes) -> None:
    beside = target + b".link"
    if os.path.lexists(beside):
        os.unlink(beside)  # left by a crash
    os.link(source, beside)
    disk.rename_path(beside, target)
    if os.path.lexists(beside):  # rename(2) does nothing if both names are the same file
        os.unlink(beside)
