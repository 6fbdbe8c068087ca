"""The operations of a landing, performed one by one on a project. Each may be repeated: done is told by inode.

Nothing here ever deletes a byte of the user's: what leaves the project goes to a slot. An operation that finds the
project other than expected gives its reason and changes nothing; one that finds out a moment too late, because
somebody wrote in between, puts back what it took.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping

from mudroom.core.change import Remark
from mudroom.core.entry import Entry, same_stamp
from mudroom.core.landing import Op
from mudroom.core.merge import Conflict
from mudroom.core.path import parent
from mudroom.errors import MudroomError
from mudroom.stage.beneath import look, open_beneath, open_root
from mudroom.vault.rename import exchange, sync_filesystem
from mudroom.vault.tree import At, differs, is_still, movable, move_tree, set_mode, settle, sync_path, walk

FEW = 32
"""Up to so many files or directories are fsynced one by one; above, one syncfs is cheaper."""

Progress = Callable[[int, int], None]
Trees = Mapping[int, dict[bytes, Entry]]
"""By slot: every entry of a whole directory, by its path relative to it."""

EDITED = "changed in the project while it was being applied"
ENDLESS = "was not removed: what it was renamed to could not be placed"
CREATED = "created in the project while it was being applied"


class Executor:
    def __init__(self, project: bytes, slots: bytes, trees: Trees) -> None:
        self._root = open_root(project)
        self._slots = open_root(slots)
        self._trees = trees
        self._touched: set[bytes] = set()
        self.done: list[Op] = []
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
            if reason:
                moved = op.path if op.origin else b""
                self.conflicts.append(Conflict(op.origin or op.path, reason, ours_at=moved))
                refused.add(op.path)
            else:
                self.done.append(op)
        self._sync()

    def _perform(self, op: Op) -> str:
        """The reason why it was not done, or an empty string."""
        above, _slash, name = op.path.rpartition(b"/")
        try:
            descriptor = open_beneath(self._root, above, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            gone = op.kind in ("remove", "rmdir") and error.errno == errno.ENOENT
            return "" if gone else f"its directory cannot be entered: {error.strerror}"
        try:
            self._touched.add(above)
            return _PERFORM[op.kind](self, op, (descriptor, name or b"."))
        except FileExistsError:
            return CREATED
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV, errno.EBUSY):
                raise
            return f"{error.strerror}"
        finally:
            os.close(descriptor)

    def _slot(self, op: Op) -> At:
        return (self._slots, b"%d" % op.slot)

    def _place(self, op: Op, at: At) -> str:
        here, slot = look(*at), self._slot(op)
        assert op.new is not None
        if here is not None and _same_inode(here, op.new):
            settle(at, op.new)
            return ""
        if here is not None:
            return CREATED
        if look(*slot) is None:
            raise MudroomError(f"{os.fsdecode(op.path)}: its backup {op.slot} is missing")
        move_tree(slot, at, op.new)
        return ""

    def _swap(self, op: Op, at: At) -> str:
        here, slot = look(*at), self._slot(op)
        if here is not None and op.new is not None and _same_inode(here, op.new):
            settle(at, op.new)
            return ""
        if not is_still(op.old, here):
            return EDITED
        with movable(slot, op.new), movable(at, op.old):
            exchange(slot, at)
        if self._holds_old(op, slot):
            return ""
        exchange(slot, at)
        return EDITED

    def _remove(self, op: Op, at: At) -> str:
        here, slot = look(*at), self._slot(op)
        if here is None or look(*slot) is not None:
            return ""  # gone already; or taken away by us before, and there is a new one of the user's
        if op.old is None or not is_still(op.old, here):
            return EDITED
        move_tree(at, slot, op.old)
        if self._holds_old(op, slot):
            return ""
        move_tree(slot, at, op.old)
        return EDITED

    def _holds_old(self, op: Op, slot: At) -> bool:
        """Whether what was just taken out of the project is what was expected, down to every file of a directory."""
        if not is_still(op.old, look(*slot)):
            return False
        directory = op.old is not None and op.old.kind == "directory"
        return not directory or differs(walk(slot), self._trees.get(op.slot, {})) is None

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
            except (FileNotFoundError, NotADirectoryError):
                self._touched.add(parent(path))  # the directory itself was removed; its parent holds the news


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
