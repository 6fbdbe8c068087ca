"""The operations for an undo or a redo, computed from the apply's record and the present project.

Files are recognised by the apply's imprint (``imprint.py``). If a file is still the applied file, its operation expects
the present entry; if it was edited, the operation expects an entry that no file has, so that it becomes a conflict or a
merge.
"""

from __future__ import annotations

import os

from mudroom.core.merge.made_undo import repositories_in, undo_of_repositories
from mudroom.core.merge.operations import Op, expand, inverse
from mudroom.core.tree.change import Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import is_below
from mudroom.stage import disk
from mudroom.stage.beneath import LastDirectory, directory, open_root
from mudroom.stage.layers.landed import elsewhere
from mudroom.stage.originals import moved_files
from mudroom.typing import NamedTuple
from mudroom.vault.apply.form import follow_list
from mudroom.vault.apply.imprint import Recognition
from mudroom.vault.apply.imprint import load as load_imprint
from mudroom.vault.apply.slot_directory import open_slots
from mudroom.vault.apply.tree import walk
from mudroom.vault.apply.unmerge import Unmerge
from mudroom.vault.record import ApplyRecord


class Reversal(NamedTuple):
    record: ApplyRecord
    """With the inverse operations in reverse order."""
    merged: list[bytes]
    """Paths of merged files."""
    staying: set[bytes]
    """Repositories that stay."""
    held: list[Op]
    """Inverse operations that are not in the record: another program holds open the file that must be read."""
    lost: list[Remark]
    """About what merged files could not be given (``form.py``)."""


def reverse(record: ApplyRecord, place: bytes, state: str) -> Reversal:
    """Return the operations that take the apply back. ``place``: the apply's directory; its state is ``done`` or
    ``undone``.

    A directory that has gained or changed files is taken back file by file. In an undo, a text that was edited since is
    merged.
    """
    record, staying = _with_repositories(record)
    slots = open_slots(record)
    try:
        root = open_root(record.project)
    except BaseException:
        os.close(slots)
        raise
    reader = LastDirectory(root)
    recognition = Recognition(load_imprint(place, state), reader, moved_files.read(os.path.dirname(place)))
    trees = dict(record.trees)
    numbers = (int(name) for name in disk.names(slots) if name.isdigit())
    unmerge = Unmerge(place, root, slots, max(numbers, default=0) + 1_000_000)
    free = max((op.slot for op in record.ops), default=0) + 1
    ops: list[Op] = []
    held: list[Op] = []
    try:
        for op in (inverse(op) for op in reversed(record.ops)):
            present = _present_tree(root, op, recognition, trees[op.slot]) if op.whole and op.kind == "remove" else None
            if present is not None:
                trees[op.slot] = present
                ops.append(op)
            elif op.kind == "remove" and op.whole:
                parts = expand(op, trees[op.slot], free)
                free += len(parts)
                kept = (part for part in parts if not any(is_below(part.path, top) for top in staying))
                ops += [_recognised(reader, part, recognition)[0] for part in kept]
            else:
                known, current = _recognised(reader, op, recognition)
                _follow(reader, known, current, slots)
                ops.append(unmerge.op(known, current) if state == "done" else known)
                if unmerge.held and unmerge.held[-1] == op.path:
                    held.append(op)
                    ops.pop()
    finally:
        reader.close()
        os.close(root)
        os.close(slots)
    return Reversal(record._replace(ops=tuple(ops), trees=trees), unmerge.merged, staying, held, unmerge.lost)


def _present_tree(root: int, op: Op, recognition: Recognition, tree: dict[bytes, Entry]) -> dict[bytes, Entry] | None:
    """Return a directory's present entries, as the operation that removes it expects them; None if they differ from the
    applied entries."""
    above, _slash, name = op.path.rpartition(b"/")
    present: dict[bytes, Entry] = {}
    try:
        with directory(root, above) as opened:
            for path, entry in walk((opened, name)):
                if not recognition.is_same(op.path + b"/" + path, tree.get(path), entry):
                    return None
                present[path] = entry
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return tree  # the operation itself reports the obstacle
    return present if present.keys() == tree.keys() else None


def _recognised(reader: LastDirectory, op: Op, recognition: Recognition) -> tuple[Op, Entry | None]:
    """Return the operation with the entry that it must expect, and the present entry if it was read.

    The expected entry is the present entry if that is the applied file or link; otherwise it is an entry that no file
    has.
    """
    if op.old is None or op.old.kind == "directory":
        return op, None
    try:
        current = reader.look(op.path)
    except PermissionError:  # the apply has closed its directory, which an earlier operation opens
        return op._replace(old=op.old._replace(ctime=0)), None
    if current is None or current.kind != op.old.kind:
        return op, current
    if op.new is not None and (current.device, current.inode) == (recognition.device, op.new.inode):
        # It was held open when the apply went the other way, so it already is the file that the operation would place.
        return op, None
    same = recognition.is_same(op.path, op.old, current)
    return op._replace(old=current if same else elsewhere(op.old)), current


def _follow(reader: LastDirectory, op: Op, current: Entry | None, slots: int) -> None:
    """Let the file that a swap brings back have the list that the user has set since (``form.py``)."""
    if op.kind != "swap" or op.new is None or op.new.kind != "file" or current is None or op.old != current:
        return
    above, _slash, name = op.path.rpartition(b"/")
    follow_list(reader.enter(above), name, slots, b"%d" % op.slot, op.new.mode)


def _with_repositories(record: ApplyRecord) -> tuple[ApplyRecord, set[bytes]]:
    """Return the record with refreshed indexes for the repositories that the apply brought, and the repositories that
    stay because the user has worked in them since."""
    trees, staying = dict(record.trees), set[bytes]()
    root = open_root(record.project)
    try:
        for op in record.ops:
            tree = trees.get(op.slot, {}) if op.kind == "place" and op.whole else {}
            tops = repositories_in(op.path, tree)
            if not tree or not tops:
                continue
            above, _slash, name = op.path.rpartition(b"/")
            try:
                with directory(root, above) as opened:
                    live = dict(walk((opened, name)))
            except OSError:
                continue  # the operation itself reports the obstacle
            undo = undo_of_repositories(tops, tree, live)
            trees[op.slot] = undo.tree
            staying |= {op.path + b"/" + top if top else op.path for top in undo.staying}
    finally:
        os.close(root)
    return record._replace(trees=trees), staying
