"""The group of files that land in a project which several users share through a group.

A file made in a set-group-ID directory gets the directory's group (inode(7)), but a file moved there from a slot keeps
its own group, which the other users are not in. So before it lands, in its slot, a file that replaces another gets that
file's group, and a new file in a set-group-ID directory gets the directory's group. A user may give a file to a group
that the user is in (chown(2)); otherwise the group stays, as with an editor.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping

from mudroom.core.merge.operations import Op
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ROOT, parent
from mudroom.stage import disk
from mudroom.stage.beneath import look, look_beneath
from mudroom.stage.layers.closed_directory import entered


class LandingGroup:
    """Gives entries in slots their groups in the project. Owner: the caller, in one thread."""

    def __init__(self, root: int) -> None:
        """``root``: descriptor of the project."""
        self._root = root
        self._made: dict[bytes, int | None] = {}

    def give(self, slots: int, op: Op, entry: Entry, below: Mapping[bytes, Entry]) -> Entry:
        """Give the operation's slot its group, and return its entry. ``below``: the entries in a whole directory, by
        path."""
        group = self._of(op, entry)
        if group is None:
            return entry
        slot = b"%d" % op.slot
        for path, inner in below.items() if entry.kind == "directory" else ():
            if inner.gid != group:
                above, _slash, name = (slot + b"/" + path).rpartition(b"/")
                with entered(slots, above) as opened:
                    give_group(opened, name, group)
        if entry.gid == group or not give_group(slots, slot, group):
            return entry
        given = look(slots, slot)
        assert given is not None
        return given

    def _of(self, op: Op, entry: Entry) -> int | None:
        if op.old is not None and op.old.kind == entry.kind:
            return op.old.gid
        above = parent(op.path)
        if above not in self._made:
            self._made[above] = self._of_new(above)
        return self._made[above]

    def _of_new(self, above: bytes) -> int | None:
        """Return the group that the kernel would give to a new file in this project directory; None for the user's own
        group.

        A shared project has set-group-ID on its top directory: for other projects this costs one call.
        """
        if ROOT not in self._made:
            info = disk.fstat(self._root)
            self._made[ROOT] = info.st_gid if info.st_mode & stat.S_ISGID else None
        if self._made[ROOT] is None or above == ROOT:
            return self._made[ROOT]
        entry = look_beneath(self._root, above)
        if entry is None or entry.kind != "directory":  # made by the same apply
            return self._of_new(parent(above))
        return entry.gid if entry.mode & stat.S_ISGID else None


def give_group(at: int, name: bytes, group: int) -> bool:
    """Set the group. Return whether the entry has it now."""
    try:
        disk.set_owner(at, name, -1, group)
    except OSError:  # not in the group, or a file system without owners
        return False
    return True
