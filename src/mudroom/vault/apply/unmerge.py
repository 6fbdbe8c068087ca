"""Undo an apply after later edits: merge the applied, the current and the earlier version.

For that, an apply keeps the texts that replace others beside its slots (``originals``); the earlier version is in the
slot. Where both edits can be merged, undo removes the apply's edit and keeps the user's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from mudroom.core.merge.merge import combine_modes
from mudroom.core.merge.operations import Op
from mudroom.core.system.closing import Descriptor
from mudroom.core.text.linediff import is_binary
from mudroom.core.tree.change import Remark
from mudroom.core.tree.entry import Entry, FileHeld, from_stat
from mudroom.core.tree.landing_form import attribute_rule, is_kept
from mudroom.stage import disk
from mudroom.stage.beneath import directory, look
from mudroom.stage.form import form_at
from mudroom.stage.originals.original import SMALL, Originals
from mudroom.stage.source import DirectorySource, read_all
from mudroom.vault.apply.form import LOST, give_form
from mudroom.vault.apply.imprint import digest_of
from mudroom.vault.apply.tree import is_unchanged
from mudroom.vault.conflict.reconciliation import merge_texts
from mudroom.vault.sync import sync_directory


def keep_applied(place: bytes, slots: int, ops: Iterable[Op]) -> dict[bytes, bytes]:
    """Keep the texts that are about to replace others. Durable when the next plan is written beside them. Return the
    digests of the files read (``imprint.py``), by path."""
    digests: dict[bytes, bytes] = {}
    kept = Originals([place])
    source = DirectorySource(slots)
    for op in ops:
        if op.kind != "swap" or op.new is None or op.old is None or not op.new.kind == op.old.kind == "file":
            continue
        if op.new.size > SMALL or not op.new.mode & 0o400:
            continue
        content = read_all(source, b"%d" % op.slot, SMALL)
        if content is None:
            continue
        digests[op.path] = digest_of(content)
        if not is_binary(content):
            kept.keep(op.path, op.new, content)
    if not kept:
        return digests
    kept.save()
    for name in (b"pack", b"index"):
        with Descriptor(disk.open_path(place + b"/originals/" + name, os.O_RDONLY | disk.O_CLOEXEC)) as descriptor:
            disk.sync(descriptor)
    sync_directory(place + b"/originals")
    return digests


class Unmerge:
    """Undo operations that keep later edits, for one apply.

    ``root``: the project. ``slots``: the earlier versions. ``free``: the first unused slot number.
    """

    def __init__(self, place: bytes, root: int, slots: int, free: int) -> None:
        self._root, self._slots, self._free = root, slots, free
        self._originals = Originals([place])
        self.merged: list[bytes] = []
        self.lost: list[Remark] = []
        self.held: list[bytes] = []
        """Paths of edited files that another program holds open: the edits cannot be told apart."""

    def op(self, op: Op, current: Entry | None) -> Op:
        """Return the operation that undoes the apply: ``op`` (already inverted), or an operation that places merged
        content over the user's edit.

        Return ``op`` unchanged, to be a conflict, if the edits cannot be merged. ``current``: the project's present
        entry; None if there is none or its directory may not be entered.
        """
        if op.kind != "swap" or op.whole or op.old is None or op.new is None or op.new.kind != "file":
            return op
        if current is None or current.kind != "file" or is_unchanged(op.old, current):
            return op
        try:
            content, mode = self._content(op, current), combine_modes(op.old.mode, current.mode, op.new.mode)
        except FileHeld:
            self.held.append(op.path)
            return op
        if content is None or mode is None:
            return op
        slot, self._free = self._free, self._free + 1
        new = self._write(op.path, current, b"%d" % slot, content, mode)
        self.merged.append(op.path)
        return op._replace(slot=slot, old=current, new=new)

    def _content(self, op: Op, current: Entry) -> bytes | None:
        if max(current.size, op.new.size if op.new is not None else 0) > SMALL:
            return None
        original = self._originals.content(op.path)
        if original is None:
            return None
        with os.fdopen(original, "rb") as stream:
            applied = stream.read()
        mine = read_all(DirectorySource(self._root), op.path, SMALL)
        before = read_all(DirectorySource(self._slots), b"%d" % op.slot, SMALL)
        if before is None or mine is None:
            return None
        content, reason = merge_texts(applied, mine, before)
        return None if reason else content

    def _write(self, path: bytes, current: Entry, name: bytes, content: bytes, mode: int) -> Entry:
        """Write a file that replaces the project's file at ``path``, in its form."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | disk.O_NOFOLLOW | disk.O_CLOEXEC
        descriptor = disk.open_at(self._slots, name, flags, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            above, _slash, last = path.rpartition(b"/")
            with directory(self._root, above) as opened:
                form = form_at(opened, last, current, lambda each: is_kept(each) or attribute_rule(each).lands)
            made = from_stat(disk.fstat(descriptor))  # type: ignore[arg-type]
            lost = give_form(self._slots, name, form, made, {})  # before the mode: chown(2) clears mode bits
            self.lost += [Remark(path, f"{LOST} {words}") for words in lost]
            disk.set_mode_of(descriptor, mode)
            disk.sync(descriptor)
        disk.sync(self._slots)
        entry = look(self._slots, name)
        assert entry is not None
        return entry
