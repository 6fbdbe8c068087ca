"""Perform a landing's operations on a project, one by one. Every operation may be repeated.

This module never deletes the user's data: a file that leaves the project goes to a slot. If the project is not as
expected, the operation changes nothing and returns the reason. If that is found too late, because a file was written in
between, the operation puts back what it took. At the end every taken file is checked once more, in case a process still
writes to a file that it had open.

Inodes tell whether an operation was done before a crash: then the project holds the new inode, or the slot holds the
old inode.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping

from mudroom.core.merge.merge import Conflict
from mudroom.core.merge.operations import Op
from mudroom.core.system.closing import ClosedOnError
from mudroom.core.tree.change import Remark
from mudroom.core.tree.entry import HELD, Entry, is_untouched, same_stamp
from mudroom.stage import disk
from mudroom.stage.beneath import look, open_beneath, open_root
from mudroom.stage.originals.moved_files import Moved
from mudroom.stage.source import DirectorySource, same_as
from mudroom.vault.apply.imprint import take as take_imprint
from mudroom.vault.apply.rename import At, aside_of, is_same_file, mend, take
from mudroom.vault.apply.tree import (
    exchange_trees,
    first_difference,
    is_unchanged,
    move_tree,
    put_back,
    set_mode,
    settle,
    sync_path,
    walk,
)

FEW = 32
"""Up to this many files or directories are fsynced one by one; above it, one syncfs is cheaper."""

Progress = Callable[[int, int], None]
Trees = Mapping[int, dict[bytes, Entry]]
"""For each slot: every entry in a whole directory, by its path relative to the directory."""

EDITED = "changed in the project while it was being applied"
ENDLESS = "was not removed: what it was renamed to could not be placed"
CREATED = "created in the project while it was being applied"
SINCE = {
    "undoing": {EDITED: "changed in the project since it was applied", CREATED: "created in the project since then"},
    "redoing": {EDITED: "changed in the project since it was undone", CREATED: "created in the project since then"},
}
"""Words for an apply's state: an undo and a redo come long after the project was examined."""
MISSING = "its new content is missing from mudroom's slots"
WRITTEN = "was written to after it had been replaced; mudroom undo restores the written version"

ASIDE = "was created again while it was being replaced; its earlier version is in mudroom's slots, as {}"

NOTHING = "\0"
"""Not a reason: the operation had no effect, so undo must not reverse it."""

_FAILURES = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors that concern more than one path. The apply stops, and continues when the cause is gone."""


_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors on entering a directory that an earlier run or the user has removed or replaced by a file or link."""
_WORDS = {
    errno.EXDEV: "is on another mount than the project, so it cannot be replaced in one step",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "may not be written: its directory forbids it",
    errno.EBUSY: HELD,
    errno.EPERM: "may not be changed: it is immutable, or belongs to another user",
}
"""Reasons for errors that concern one path."""


class Executor:
    """Performs operations. Close it.

    ``slots``: descriptor of the slot directory, which this object closes. ``again``: an earlier run was interrupted, so
    some operations may already be done. ``has_kept``: whether the fork still has the file that an operation places,
    which proves that it was not placed. ``state``: the apply's; a redo
    leaves out the files that the project has again.
    """

    def __init__(
        self,
        project: bytes,
        slots: int,
        trees: Trees,
        *,
        again: bool = False,
        has_kept: Callable[[Op], bool] = lambda _op: False,
        state: str = "",
    ) -> None:
        self._slots, self._words, self._is_redo = slots, SINCE.get(state, {}), state == "redoing"
        with ClosedOnError(slots):
            self._root = open_root(project)
        self._device = disk.fstat(self._root).st_dev
        self._trees, self._again, self._has_kept = trees, again, has_kept
        self._touched: set[bytes] = set()
        self.done: list[Op] = []
        """Operations that were done. ``old`` is now the entry in the slot."""
        self.undone: list[Op] = []
        """Operations that were not done: conflicts, and removals of files that were already gone."""
        self.held: list[Op] = []
        """Operations in ``undone`` whose file another program holds open."""
        self.refused: list[Op] = []
        """Operations in ``undone`` with a conflict."""
        self.conflicts: list[Conflict] = []
        self.remarks: list[Remark] = []

    def close(self) -> None:
        os.close(self._root)
        os.close(self._slots)

    def run(self, ops: Iterable[Op], progress: Progress | None = None) -> None:
        """Perform all operations in order, then make the touched directories durable."""
        ops = list(ops)
        refused: set[bytes] = set()
        for number, op in enumerate(ops):
            if progress:
                progress(number, len(ops))
            reason = self._perform(op) if op.after not in refused else ENDLESS
            if not reason:
                self.done.append(op)
                continue
            self.undone.append(op)
            if self._is_redo and reason in (EDITED, CREATED) and self._is_there(op):
                reason = NOTHING  # a part of the apply was applied again
            if reason == HELD:
                self.held.append(op)
            if reason != NOTHING:
                self._refuse(op, reason)
                refused.add(op.path)
        if progress:
            progress(len(ops), len(ops))
        # a process may have written to a file that it had open when the file was taken
        self._check_taken_files()
        self._sync()

    def _is_there(self, op: Op) -> bool:
        """Return whether the project already has the file that ``op`` places."""
        project, slots, slot = DirectorySource(self._root), DirectorySource(self._slots), b"%d" % op.slot
        current = project.look(op.path)
        if current is None or op.new is None or current.kind != "file" or current[:3] != op.new[:3]:
            return False
        try:
            return same_as(project.open(op.path), slots, slot)
        except OSError:
            return False  # the conflict stays

    def _refuse(self, op: Op, reason: str) -> None:
        self.refused.append(op)
        said = self._words.get(reason, reason)
        self.conflicts.append(Conflict(op.origin or op.path, said, ours_at=op.path if op.origin else b""))

    def _perform(self, op: Op) -> str:
        """Perform one operation. Return the reason why it was not done, or an empty string."""
        above, _slash, name = op.path.rpartition(b"/")
        try:
            descriptor = open_beneath(self._root, above, os.O_RDONLY | disk.O_DIRECTORY)
        except OSError as error:
            if error.errno in _FAILURES:
                raise
            return self._handle_missing_parent(op, error)
        try:
            self._touched.add(above)
            return _PERFORM[op.kind](self, op, (descriptor, name or b"."))
        except FileExistsError:
            return CREATED
        except FileNotFoundError:
            return EDITED  # removed since it was examined
        except OSError as error:
            if error.errno in _FAILURES:
                raise
            return _WORDS.get(error.errno or 0, f"{error.strerror}")
        finally:
            os.close(descriptor)

    def _handle_missing_parent(self, op: Op, error: OSError) -> str:
        if error.errno in _NO_DIRECTORY:
            if op.kind == "rmdir":
                return ""
            if op.kind == "remove":
                return "" if look(*self._slot(op)) is not None else NOTHING
        return f"its directory cannot be entered: {error.strerror}"

    def _slot(self, op: Op) -> At:
        return (self._slots, b"%d" % op.slot)

    def leave_imprint(self, place: bytes, state: str, began: int, digests: Mapping[bytes, bytes]) -> dict[bytes, Moved]:
        """Write the imprint of the performed operations (``imprint.py``) into the apply's directory. ``state``: the
        apply's next state. ``digests``: known digests, by path. Return the files that were put there."""
        return take_imprint(place, state, self._root, self.done, self._trees, began, digests)

    def holds_new(self, op: Op) -> bool:
        """Whether the slot holds the new file, so that it holds no file from the project."""
        entry = look(*self._slot(op)) if op.slot else None
        return entry is not None and op.new is not None and self._is_file(entry, op.new)

    def _is_file(self, present: Entry, planned: Entry) -> bool:
        """Whether a present entry is the planned file, perhaps edited since. Slots and project are on one mount, whose
        device number may have changed since the plan was written."""
        found = present.device, present.inode, present.kind
        return found == (self._device, planned.inode, planned.kind)

    def _place(self, op: Op, at: At) -> str:
        slot = self._slot(op)
        assert op.new is not None
        if not self._again:
            try:
                move_tree(slot, at, op.new)
                return ""
            except (FileExistsError, FileNotFoundError):
                pass  # examined below: either the slot or the project is not as expected
        current = look(*at)
        if current is not None and self._is_file(current, op.new):
            if self._again and is_same_file(slot, at):  # interrupted in the middle of a move by link
                disk.unlink(slot[0], slot[1])
            settle(at, op.new)
            return ""
        if look(*slot) is None:  # placed before; the user has moved or replaced it since
            return "" if self._again and not self._has_kept(op) else MISSING
        if current is not None:
            return CREATED
        move_tree(slot, at, op.new)
        return ""

    def _swap(self, op: Op, at: At) -> str:
        slot = self._slot(op)
        if self._again and not mend(slot, at):
            self._keep_aside(op, slot)
            return EDITED
        current = look(*at)
        assert op.new is not None and op.old is not None
        if current is not None and self._is_file(current, op.new):
            settle(at, op.new)
            return ""
        expected = self._is_expected(op.old, current)
        if self._again or not expected:
            slot_entry = look(*slot)
            if slot_entry is not None and self._is_file(slot_entry, op.old):
                return ""  # swapped before; the user has replaced the new file
            if slot_entry is None:
                return MISSING
        if not expected:
            return EDITED
        try:
            exchange_trees(slot, op.new, at, op.old)
        except FileExistsError:
            self._keep_aside(op, slot)
            raise
        except FileNotFoundError:
            if look(*slot) is None:
                return MISSING
            raise
        return "" if self._holds_old(op, look(*slot), slot) else self._undo_swap(op, slot, at)

    def _keep_aside(self, op: Op, slot: At) -> None:
        """Add a remark about the file left at ``aside_of(slot)``: without an atomic exchange, the user may create a new
        file between the two halves of a swap."""
        if look(*aside_of(slot)) is not None:
            self.remarks.append(Remark(op.path, ASIDE.format(os.fsdecode(aside_of(slot)[1]))))

    def _undo_swap(self, op: Op, slot: At, at: At) -> str:
        """Undo a swap. The slot does not hold the expected entry, so it holds the user's latest version."""
        slot_entry = look(*slot)
        assert op.new is not None
        exchange_trees(slot, slot_entry, at, op.new)
        back = look(*slot)
        if back is not None and self._is_file(back, op.new):
            return EDITED
        # The user has replaced our file meanwhile: that version is the latest.
        exchange_trees(slot, back, at, slot_entry)
        return ""

    def _remove(self, op: Op, at: At) -> str:
        current, slot = look(*at), self._slot(op)
        if self._again and look(*slot) is not None:
            return ""  # already removed by an earlier run; a file at the path is a new file from the user
        if current is None:
            return NOTHING
        if op.old is None or not self._is_expected(op.old, current):
            return EDITED
        try:
            move_tree(at, slot, op.old, take)
        except FileExistsError:
            return ""  # the slot holds it already
        return "" if self._holds_old(op, look(*slot), slot) else self._bring_back(slot, at)

    def _is_expected(self, expected: Entry | None, current: Entry | None) -> bool:
        """Whether the project holds the planned entry.

        The ctime does not count after an interruption, because the move has changed it; for a file with several names,
        because an earlier operation may have moved one of them; or if it was unknown (0).
        """
        if current is None or expected is None or current.kind == "directory" or current.links > 1 or self._again:
            return is_unchanged(expected, current)
        if not expected.ctime:
            return is_unchanged(expected, current)
        return is_untouched(expected, current)

    def _bring_back(self, slot: At, at: At) -> str:
        taken = look(*slot)
        if taken is not None:
            try:
                put_back(slot, at, taken)
            except FileExistsError:
                return ""  # the user has created a new file there, which stays; undo restores the earlier one
        return EDITED

    def _holds_old(self, op: Op, entry: Entry | None, slot: At) -> bool:
        """Whether the slot, with this entry, holds the expected old entry, including every file in a directory."""
        try:
            if not is_unchanged(op.old, entry):
                return False
            directory = op.old is not None and op.old.kind == "directory"
            return not directory or first_difference(walk(slot, ours=True), self._trees.get(op.slot, {})) is None
        except OSError as error:
            if error.errno in _FAILURES:
                raise
            return False  # an unreadable directory; it was readable when it was examined

    def _check_taken_files(self) -> None:
        """Check every taken file again, and put it back if a process has written to it since it was taken."""
        done, self.done = self.done, []
        for op in done:
            slot = self._slot(op)
            taken = look(*slot) if op.kind in ("swap", "remove") else None
            if taken is None or self._holds_old(op, taken, slot):
                self.done.append(op)
            elif self._give_back(op, slot):
                self.undone.append(op)
                self._refuse(op, EDITED)
            else:
                self.done.append(op._replace(old=look(*slot)))
                self.remarks.append(Remark(op.path, WRITTEN))

    def _give_back(self, op: Op, slot: At) -> bool:
        """Put back the written file; the new file, if any, goes back to its slot. Return whether that was possible."""
        above, _slash, name = op.path.rpartition(b"/")
        try:
            descriptor = open_beneath(self._root, above, os.O_RDONLY | disk.O_DIRECTORY)
        except OSError:
            return False
        at = (descriptor, name)
        try:
            if op.kind == "remove":
                return bool(self._bring_back(slot, at))
            return is_unchanged(op.new, look(*at)) and bool(self._undo_swap(op, slot, at))
        except OSError as error:
            if error.errno in _FAILURES:
                raise
            return False
        finally:
            os.close(descriptor)

    def _mkdir(self, op: Op, at: At) -> str:
        assert op.new is not None
        try:
            disk.mkdir(at[0], at[1], 0o700)
        except FileExistsError:
            current = look(*at)
            return "" if current is not None and current.kind == "directory" else CREATED
        set_mode(at, op.new.mode)
        self._touched.add(op.path)
        return ""

    def _rmdir(self, op: Op, at: At) -> str:
        try:
            disk.rmdir(at[0], at[1])
        except (FileNotFoundError, NotADirectoryError):
            pass  # gone, or already replaced: a later operation that places a file there notices if it is the user's
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self.remarks.append(Remark(op.path, "was not removed: it holds files that are not in the fork"))
        return ""

    def _chmod(self, op: Op, at: At) -> str:
        current = look(*at)
        assert op.new is not None and op.old is not None
        if current is None or current.kind != op.new.kind:
            return EDITED
        if current.mode == op.new.mode:
            self._touched.add(op.path)  # perhaps changed by us just before a crash
            return ""
        if current.mode != op.old.mode or (current.kind != "directory" and not same_stamp(op.old, current)):
            return EDITED
        set_mode(at, op.new.mode)
        self._touched.add(op.path)
        return ""

    def _sync(self) -> None:
        if len(self._touched) > FEW:
            disk.sync_filesystem(self._root)
            return
        for path in sorted(self._touched):
            try:
                sync_path(self._root, path)
            except OSError as error:
                if error.errno in _FAILURES:
                    raise
                disk.sync_filesystem(self._root)  # the directory was removed or may not be opened: sync everything
                return


_PERFORM: dict[str, Callable[[Executor, Op, At], str]] = {
    "place": Executor._place,
    "swap": Executor._swap,
    "remove": Executor._remove,
    "mkdir": Executor._mkdir,
    "rmdir": Executor._rmdir,
    "chmod": Executor._chmod,
}
