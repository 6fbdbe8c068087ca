"""``NAME.bak`` beside each file that an apply replaces or removes, on request.

Backups are operations in the same landing: made in the same transaction, reported with it, and removed by undo. Files
in a directory that is removed as a whole are not copied, because undo has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.merge.operations import Landing, Op
from mudroom.core.tree.change import Remark
from mudroom.core.tree.path import name
from mudroom.vault.conflict.reconciliation import BACKUP, Reconciler

_LONGEST = 255  # NAME_MAX in linux/limits.h, which every common file system has


def with_backups(landing: Landing, reconciler: Reconciler) -> Landing:
    """Return the landing with a backup operation before each operation that replaces or removes a file. Raise OSError
    if a file cannot be read."""
    remarks: list[Remark] = []
    ops = list(_ops(landing, reconciler, remarks))
    return landing._replace(ops=tuple(ops), remarks=(*landing.remarks, *remarks))


def _ops(landing: Landing, reconciler: Reconciler, remarks: list[Remark]) -> Iterator[Op]:
    slot = max((op.slot for op in landing.ops), default=0)
    taken = {op.path for op in landing.ops}
    for op in landing.ops:
        if op.kind in ("swap", "remove") and op.old is not None and op.old.kind != "directory":
            slot += 1
            reason = _refusal(op, taken, reconciler)
            if reason:
                remarks.append(Remark(op.path, f"has no {BACKUP.decode()} beside it: {reason}"))
            else:
                yield _backup(op, slot, reconciler)
        elif op.kind in ("swap", "remove") and op.whole:
            remarks.append(Remark(op.path, "went as a whole, without a backup; mudroom undo restores it"))
        yield op


def _refusal(op: Op, taken: set[bytes], reconciler: Reconciler) -> str:
    at = op.path + BACKUP
    current = reconciler.look(at)
    if op.old is None or op.old.kind != "file":
        return "it is not a regular file"
    if len(name(at)) > _LONGEST:
        return "the name would be too long"
    if at in taken or (current is not None and current.kind != "file"):
        return "the name is taken"
    return ""


def _backup(op: Op, slot: int, reconciler: Reconciler) -> Op:
    """Return the backup operation. It replaces an older backup."""
    at = op.path + BACKUP
    current = reconciler.look(at)
    assert op.old is not None
    kept = reconciler.keep_copy(at, reconciler, op.path, op.old)
    return Op("swap" if current is not None else "place", at, slot, current, kept.entry, merged=kept.name)
