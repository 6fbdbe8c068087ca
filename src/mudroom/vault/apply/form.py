"""The form of the files that land, beside content: owner, group, attributes and modes.

``core/tree/landing_form.py`` has the rules. They are kept here, in the slots, before an entry lands:

1. A file that replaces another, or whose new name it has, gets what the other has and the table calls kept: a command
   sees none of it, or cannot set it, and loses it when it writes a new file in the place of the old one.
2. A new entry gets what one that is made there gets: the group of a set-group-ID directory (inode(7)), and the default
   access control list (acl(5)) of its directory, within its mode.
3. Attributes of the fork's that do not land are removed, and each entry gets its reviewed mode.

A user may give a file to a group that the user is in, root also to an owner (chown(2)); otherwise they stay, as with an
editor, and a remark in the review has said so.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping

from mudroom.core.merge.operations import Op
from mudroom.core.tree.change import Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.landing_form import ACCESS, DEFAULT, KEPT_FLAGS, attribute_rule, is_left
from mudroom.core.tree.path import parent
from mudroom.stage import disk
from mudroom.stage.beneath import LastDirectory, directory, look, look_beneath
from mudroom.stage.form import FileForm, attributes_at, form_at, set_attribute, set_flags
from mudroom.stage.layers.closed_directory import LastEntered
from mudroom.typing import NamedTuple
from mudroom.vault.apply.tree import leave_layer, set_mode


class _Inherited(NamedTuple):
    """What a new entry gets from its directory in the project."""

    group: int | None
    """None: the user's own."""
    default: bytes
    """The default access control list; empty if there is none."""


class LandingForm:
    """Gives entries in slots their form in the project. Owner: the caller, in one thread; close it."""

    def __init__(self, root: int, sources: Mapping[bytes, bytes]) -> None:
        """``root``: descriptor of the project, which this object closes. ``sources``: the old path of each renamed
        file."""
        self._root, self._sources, self._project = root, sources, LastDirectory(root)
        self._inherited: dict[bytes, _Inherited] = {}
        self.remarks: list[Remark] = []
        """About what should have been kept and could not be set."""

    def give(self, slots: int, op: Op, entry: Entry, below: Mapping[bytes, Entry]) -> Entry:
        """Give the operation's slot its form, and return its entry. ``below``: the reviewed entries in a whole
        directory, by path."""
        slot, inherited = b"%d" % op.slot, self._of_directory(parent(op.path))
        if below and entry.kind == "directory":
            has_modes = op.new is not None and entry.mode == op.new.mode
            with LastEntered(slots) as opened:
                for path, reviewed in below.items():
                    above, _slash, name = (slot + b"/" + path).rpartition(b"/")
                    at, whole = opened.enter(above), op.path + b"/" + path
                    present = look(at, name) or reviewed
                    mode = reviewed.mode if has_modes else present.mode
                    self._give(at, name, whole, present, mode, self._kept(whole, None), inherited, is_below=True)
        if op.old is not None and op.old.kind == entry.kind:
            inherited = inherited._replace(group=op.old.gid)
        if not self._give(slots, slot, op.path, entry, entry.mode, self._kept(op.path, op.old), inherited):
            return entry
        given = look(slots, slot)
        assert given is not None
        return given

    def close(self) -> None:
        self._project.close()
        os.close(self._root)

    def _kept(self, path: bytes, old: Entry | None) -> FileForm | None:
        """Return the form of the project's file that is replaced or renamed, or None."""
        source = self._sources.get(path)
        if source is None and (old is None or old.kind != "file"):
            return None
        above, _slash, name = (source or path).rpartition(b"/")
        try:
            at = self._project.enter(above)
            entry = old if source is None else look(at, name)
            return form_at(at, name, entry) if entry is not None and entry.kind == "file" else None
        except (FileNotFoundError, NotADirectoryError):
            return None  # the operation itself reports the obstacle
        except OSError as error:
            self.remarks.append(Remark(path, f"{LOST} its attributes: {error.strerror}"))
            return None

    def _give(
        self,
        at: int,
        name: bytes,
        path: bytes,
        entry: Entry,
        mode: int,
        kept: FileForm | None,
        inherited: _Inherited,
        *,
        is_below: bool = False,
    ) -> bool:
        """Give one entry its form. ``is_below``: it is in a whole directory. Return whether it has changed."""
        if sys.platform != "linux" and (not is_below or entry.kind == "directory"):
            leave_layer(at, name)
        found = attributes_at(at, name, is_left)
        if entry.kind == "file" and kept is not None:
            wanted, lost = kept.attributes, give_form(at, name, kept, entry, found)
            self.remarks += [Remark(path, f"{LOST} {words}") for words in lost]
            changed = (entry.uid, entry.gid) != (kept.user, kept.group)
        else:
            wanted = _list_of_new(entry.kind, inherited.default)
            changed = inherited.group not in (None, entry.gid)
            if inherited.group is not None and changed:
                give_group(at, name, inherited.group)
            for attribute, value in wanted.items():
                if found.get(attribute) != value:
                    set_attribute(at, name, attribute, value)
        for attribute in found.keys() - wanted.keys():
            _remove(at, name, attribute)
        changed |= any(not each.startswith("user.") for each in found) or bool(wanted)
        if entry.kind != "symlink" and (changed or entry.mode != mode):
            set_mode((at, name), mode)
        return changed

    def _of_directory(self, above: bytes) -> _Inherited:
        if above not in self._inherited:
            self._inherited[above] = self._read(above)
        return self._inherited[above]

    def _read(self, above: bytes) -> _Inherited:
        """Return what the kernel would give a new entry in this project directory."""
        entry = look_beneath(self._root, above or b".")
        if entry is None or entry.kind != "directory":  # made by the same apply
            return self._of_directory(parent(above))
        try:
            with directory(self._root, above) as opened:
                lists = attributes_at(opened, b".", lambda name: name == DEFAULT)
        except PermissionError:
            lists = {}  # no entry can be made there
        return _Inherited(entry.gid if entry.mode & stat.S_ISGID else None, lists.get(DEFAULT, b""))


LOST = "lost"


def give_form(at: int, name: bytes, kept: FileForm, entry: Entry, found: Mapping[str, bytes]) -> list[str]:
    """Give a file a form. ``entry``, ``found``: its entry and its attributes. Return what it could not be given, in
    words. Its mode may change: set it afterwards."""
    lost = []
    if entry.uid != kept.user and not disk.user():
        try:
            disk.set_owner(at, name, kept.user, -1)
        except OSError as error:
            lost.append(f"its owner: {error.strerror}")
    if entry.gid != kept.group:
        give_group(at, name, kept.group)
    for attribute, value in kept.attributes.items():
        try:
            if found.get(attribute) != value:
                set_attribute(at, name, attribute, value)
        except OSError as error:
            rule = attribute_rule(attribute)
            if not disk.user() or not rule.by_root:
                lost.append(f"{rule.words}: {error.strerror}")
    try:
        if kept.flags & KEPT_FLAGS:
            set_flags(at, name, kept.flags, KEPT_FLAGS)
    except OSError as error:
        lost.append(f"its flags of chattr(1): {error.strerror}")
    return lost


def follow_list(at: int, name: bytes, slots: int, slot: bytes, mode: int) -> None:
    """Give the file in a slot, which an undo or redo brings back, the access control list that the user has set on the
    file in its place since. ``mode``: the file's own."""
    lists = attributes_at(at, name, lambda found: found == ACCESS)
    if lists and lists != attributes_at(slots, slot, lambda found: found == ACCESS):
        set_attribute(slots, slot, ACCESS, lists[ACCESS])
        set_mode((slots, slot), mode)


def _list_of_new(kind: str, default: bytes) -> dict[str, bytes]:
    if not default or kind not in ("file", "directory"):
        return {}
    return {ACCESS: default, DEFAULT: default} if kind == "directory" else {ACCESS: default}


def _remove(at: int, name: bytes, attribute: str) -> None:
    """Remove an attribute. Changing ``user.`` attributes needs write permission, even for the owner (xattr(7))."""
    try:
        set_attribute(at, name, attribute, None)
        return
    except PermissionError:
        entry = look(at, name)
        if entry is None or entry.mode & 0o200:
            raise
    set_mode((at, name), entry.mode | 0o200)
    try:
        set_attribute(at, name, attribute, None)
    finally:
        set_mode((at, name), entry.mode)


def give_group(at: int, name: bytes, group: int) -> bool:
    """Set the group. Return whether the entry has it now."""
    try:
        disk.set_owner(at, name, -1, group)
    except OSError:  # not in the group, or a file system without owners
        return False
    return True
