"""The operations of a landing, performed one by one on a project. Each may be repeated.

Nothing here ever deletes a byte of the user's: what leaves the project goes to a slot. An operation that finds the
project other than expected gives its reason and changes nothing. One that finds out a moment too late, because somebody
wrote in between, puts back what it took; at the end everything that was taken is looked at once more, for whoever goes
on writing to a file that they had open.

Whether an operation was done before a crash is told by inodes: the project holds what was to come, or the slot holds
what was to go.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping

from mudroom.core.merge.merge import Conflict
from mudroom.core.merge.operations import Op
from mudroom.core.tree.change import Remark
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.stage.beneath import look, open_beneath, open_root
from mudroom.vault.apply.rename import At, aside_of, is_same_file, mend, sync_filesystem, take
from mudroom.vault.apply.tree import (
    bring_back,
    differs,
    exchange_trees,
    is_still,
    move_tree,
    set_mode,
    settle,
    sync_path,
    walk,
)

FEW = 32
"""Up to so many files or directories are fsynced one by one; above, one syncfs is cheaper."""

Progress = Callable[[int, int], None]
Trees = Mapping[int, dict[bytes, Entry]]
"""By slot: every entry of a whole directory, by its path relative to it."""

EDITED = "changed in the project while it was being applied"
ENDLESS = "was not removed: what it was renamed to could not be placed"
CREATED = "created in the project while it was being applied"
MISSING = "what belongs there is missing from mudroom's slots"
WRITTEN = "was written to after it had been replaced; what was written comes back with mudroom undo"

ASIDE = "was made anew while it was being replaced; what was there before is in mudroom's slots, as {}"

NOTHING = "\0"
"""Not a reason: there was nothing to do, so there is nothing to take back."""

_FAILURES = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Not about one path: the apply stops here, and goes on when they are gone."""


_WORDS = {
    errno.EXDEV: "lies on another mount than the project, where nothing can be put in one step",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "may not be written: its directory forbids it",
    errno.EPERM: "may not be changed: it is immutable, or somebody else's",
}
"""What to say of one path."""


class Executor:
    """``again``: it was cut off before, so that some of it may have been done. ``has_kept``: whether the fork has what
    an operation was to place, so that it has not been placed."""

    def __init__(
        self,
        project: bytes,
        slots: bytes,
        trees: Trees,
        *,
        again: bool = False,
        has_kept: Callable[[Op], bool] = lambda _op: False,
    ) -> None:
        self._root = open_root(project)
        self._slots = open_root(slots)
        self._trees, self._again, self._has_kept = trees, again, has_kept
        self._touched: set[bytes] = set()
        self.done: list[Op] = []
        """As they were done: ``old`` is what is in the slot now."""
        self.undone: list[Op] = []
        """What was not: conflicts, and what was to be removed and is gone."""
        self.conflicts: list[Conflict] = []
        self.remarks: list[Remark] = []

    def close(self) -> None:
        os.close(self._root)
        os.close(self._slots)

    def run(self, ops: Iterable[Op], progress: Progress | None = None) -> None:
        """Perform all, in order, then make the directories they touched durable."""
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
            if reason != NOTHING:
                self._refuse(op, reason)
                refused.add(op.path)
        self._look_again()
        self._sync()

    def _refuse(self, op: Op, reason: str) -> None:
        self.conflicts.append(Conflict(op.origin or op.path, reason, ours_at=op.path if op.origin else b""))

    def _perform(self, op: Op) -> str:
        """The reason why it was not done, or an empty string."""
        above, _slash, name = op.path.rpartition(b"/")
        try:
            descriptor = open_beneath(self._root, above, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno in _FAILURES:
                raise
            return self._without_directory(op, error)
        try:
            self._touched.add(above)
            return _PERFORM[op.kind](self, op, (descriptor, name or b"."))
        except FileExistsError:
            return CREATED
        except FileNotFoundError:
            return EDITED  # gone since it was looked at
        except OSError as error:
            if error.errno in _FAILURES:
                raise
            return _WORDS.get(error.errno or 0, f"{error.strerror}")
        finally:
            os.close(descriptor)

    def _without_directory(self, op: Op, error: OSError) -> str:
        if error.errno == errno.ENOENT:
            if op.kind == "rmdir":
                return ""
            if op.kind == "remove":
                return "" if look(*self._slot(op)) is not None else NOTHING
        return f"its directory cannot be entered: {error.strerror}"

    def _slot(self, op: Op) -> At:
        return (self._slots, b"%d" % op.slot)

    def holds_new(self, op: Op) -> bool:
        """Whether the slot holds what was to come, so that nothing of the project's is in it."""
        there = look(*self._slot(op)) if op.slot else None
        return there is not None and op.new is not None and _same_inode(there, op.new)

    def _place(self, op: Op, at: At) -> str:
        here, slot = look(*at), self._slot(op)
        assert op.new is not None
        if here is not None and _same_inode(here, op.new):
            if self._again and is_same_file(slot, at):  # cut off in the middle of a move by link
                os.unlink(slot[1], dir_fd=slot[0])
            settle(at, op.new)
            return ""
        if look(*slot) is None:  # placed before, and the user has moved or replaced it since
            return "" if self._again and not self._has_kept(op) else MISSING
        if here is not None:
            return CREATED
        move_tree(slot, at, op.new)
        return ""

    def _swap(self, op: Op, at: At) -> str:
        slot = self._slot(op)
        if self._again and not mend(slot, at):
            self._keep_aside(op, slot)
            return EDITED
        here = look(*at)
        assert op.new is not None and op.old is not None
        if here is not None and _same_inode(here, op.new):
            settle(at, op.new)
            return ""
        there = look(*slot)
        if there is not None and _same_inode(there, op.old):
            return ""  # swapped before, and the user has replaced what came
        if there is None:
            return MISSING
        if not is_still(op.old, here):
            return EDITED
        try:
            exchange_trees(slot, op.new, at, op.old)
        except FileExistsError:
            self._keep_aside(op, slot)
            raise
        return "" if self._holds_old(op, slot) else self._swap_back(op, slot, at)

    def _keep_aside(self, op: Op, slot: At) -> None:
        """Where names cannot be swapped in one act, the user may put a new one between the two halves of it."""
        if look(*aside_of(slot)) is not None:
            self.remarks.append(Remark(op.path, ASIDE.format(os.fsdecode(aside_of(slot)[1]))))

    def _swap_back(self, op: Op, slot: At, at: At) -> str:
        """What is in the slot is not what was to go there, so it is the user's latest."""
        taken = look(*slot)
        assert op.new is not None
        exchange_trees(slot, taken, at, op.new)
        back = look(*slot)
        if back is not None and _same_inode(back, op.new):
            return EDITED
        exchange_trees(slot, back, at, taken)  # the user has replaced ours meanwhile: that is later still
        return ""

    def _remove(self, op: Op, at: At) -> str:
        here, slot = look(*at), self._slot(op)
        if look(*slot) is not None:
            return ""  # taken away by us before, and if there is something, it is a new one of the user's
        if here is None:
            return NOTHING
        if op.old is None or not is_still(op.old, here):
            return EDITED
        move_tree(at, slot, op.old, take)
        return "" if self._holds_old(op, slot) else self._bring_back(slot, at)

    def _bring_back(self, slot: At, at: At) -> str:
        taken = look(*slot)
        if taken is not None:
            try:
                bring_back(slot, at, taken)
            except FileExistsError:
                return ""  # the user has put another one there, which stays; undo knows of the one before
        return EDITED

    def _holds_old(self, op: Op, slot: At) -> bool:
        """Whether what was taken out of the project is what was expected, down to every file of a directory."""
        try:
            if not is_still(op.old, look(*slot)):
                return False
            directory = op.old is not None and op.old.kind == "directory"
            return not directory or differs(walk(slot, ours=True), self._trees.get(op.slot, {})) is None
        except OSError as error:
            if error.errno in _FAILURES:
                raise
            return False  # a directory that cannot be read: it was readable when it was looked at before

    def _look_again(self) -> None:
        """Whoever had a file open may have written to it after it was taken out: that goes back to its place."""
        done, self.done = self.done, []
        for op in done:
            slot = self._slot(op)
            if op.kind not in ("swap", "remove") or look(*slot) is None or self._holds_old(op, slot):
                self.done.append(op)
            elif self._give_back(op, slot):
                self.undone.append(op)
                self._refuse(op, EDITED)
            else:
                self.done.append(op._replace(old=look(*slot)))
                self.remarks.append(Remark(op.path, WRITTEN))

    def _give_back(self, op: Op, slot: At) -> bool:
        """Whether what was written to later is in the project again, and what had come, if anything, in its slot."""
        above, _slash, name = op.path.rpartition(b"/")
        try:
            descriptor = open_beneath(self._root, above, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return False
        at = (descriptor, name)
        try:
            if op.kind == "remove":
                return bool(self._bring_back(slot, at))
            return is_still(op.new, look(*at)) and bool(self._swap_back(op, slot, at))
        except OSError as error:
            if error.errno in _FAILURES:
                raise
            return False
        finally:
            os.close(descriptor)

    def _mkdir(self, op: Op, at: At) -> str:
        assert op.new is not None
        try:
            os.mkdir(at[1], 0o700, dir_fd=at[0])
        except FileExistsError:
            here = look(*at)
            return "" if here is not None and here.kind == "directory" else CREATED
        set_mode(at, op.new.mode)
        return ""

    def _rmdir(self, op: Op, at: At) -> str:
        try:
            os.rmdir(at[1], dir_fd=at[0])
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self.remarks.append(Remark(op.path, "stays: it holds files that the fork did not know of"))
        return ""

    def _chmod(self, op: Op, at: At) -> str:
        here = look(*at)
        assert op.new is not None and op.old is not None
        if here is None or here.kind != op.new.kind:
            return EDITED
        if here.mode == op.new.mode:
            return ""
        if here.mode != op.old.mode or (here.kind != "directory" and not same_stamp(op.old, here)):
            return EDITED
        set_mode(at, op.new.mode)
        return ""

    def _sync(self) -> None:
        if len(self._touched) > FEW:
            sync_filesystem(self._root)
            return
        for path in sorted(self._touched):
            try:
                sync_path(self._root, path)
            except OSError as error:
                if error.errno in _FAILURES:
                    raise
                sync_filesystem(self._root)  # it was removed, or may not be opened: its news are elsewhere
                return


_PERFORM: dict[str, Callable[[Executor, Op, At], str]] = {
    "place": Executor._place,
    "swap": Executor._swap,
    "remove": Executor._remove,
    "mkdir": Executor._mkdir,
    "rmdir": Executor._rmdir,
    "chmod": Executor._chmod,
}


def _same_inode(a: Entry, b: Entry) -> bool:
    return (a.device, a.inode, a.kind) == (b.device, b.inode, b.kind)
