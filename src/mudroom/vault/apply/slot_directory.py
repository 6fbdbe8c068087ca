"""Slot directory of an apply: in the vault, or in ``.mudroom/apply`` for a project on another file system.

Rules of this file, for a project:

1. Each directory is opened below the one above it, and no link is followed: a clone may have any entry in ``.mudroom``.
2. Users who share a project have slots beside each other. All users who may write to the directory above may write to
   ``.mudroom`` and to ``apply``, whatever the umask; ``apply`` is sticky, so that no user can rename another's slots
   (chmod(2)). With an access control list the group gets nothing: the mode's group permissions then show the list's
   mask (acl(5)), not the group's rights.
3. Slots are read, written and removed only if they belong to this user alone. All users who may write to ``.mudroom``
   can put another directory, or a link to one, in their place; even one of this user's, if they may move it.
4. Slots hold a file whose name identifies the apply. If others have moved one of the user's directories there, by
   moving its parent, it has no such file, and slots for another apply have another. The check matters where others may
   write to a directory above.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk, xattr
from mudroom.stage.beneath import O_PATH, directory, open_root
from mudroom.vault.record import ApplyRecord
from mudroom.vault.sync import sync_directory

_IGNORE = b".gitignore"
"""The slots must be on the project's file system, but must not be committed."""
_MARK = b".of-"
_NOT_A_DIRECTORY = (errno.ELOOP, errno.ENOTDIR)
_ACL = ("system.posix_acl_access", "system.posix_acl_default")
_SHARED = {stat.S_IWGRP: stat.S_IRWXG, stat.S_IWOTH: stat.S_IRWXO}
"""Write permission for a group, or for all others → their permissions in a directory that is made there."""


def make_slots(record: ApplyRecord, *, new: bool = False) -> None:
    """Make the slot directory. ``new``: raise FileExistsError if it exists. In a project it may belong to another
    vault, whose files would land instead of the reviewed files."""
    within = _within_project(record)
    if within:
        _make_in_project(record, within, new=new)
        return
    os.makedirs(record.slots, mode=0o700, exist_ok=True)
    if disk.real_path(record.slots) != record.slots:
        raise MudroomError(
            f"{show(record.slots)} leads through a symbolic link to {show(disk.real_path(record.slots))}",
            "the state has no links inside: set MUDROOM_STATE to the directory itself",
        )


def _within_project(record: ApplyRecord) -> list[bytes]:
    """Return the names from the project to the slots, or none if they are in the vault."""
    above = record.project + b"/"
    return record.slots.removeprefix(above).split(b"/") if record.slots.startswith(above) else []


def _make_in_project(record: ApplyRecord, names: list[bytes], *, new: bool) -> None:
    project = record.project
    opened = [open_root(project)]
    try:
        for name in names:
            is_last = len(opened) == len(names)
            if is_last:
                _ignore(opened[-1])
            is_made = True
            try:
                disk.mkdir(opened[-1], name, 0o700 if is_last else 0o777)
            except FileExistsError:
                if new and is_last:
                    raise
                is_made = False
            # follows no link: a clone may have any entry here
            opened.append(disk.open_beneath(opened[-1], name, os.O_RDONLY | disk.O_DIRECTORY))
            if is_last:
                _require_own(opened[-1], record.slots)
                _require_of(record, opened)
                _mark(opened[-1], record)
            elif is_made or name == names[-2]:
                _share(opened[-2], opened[-1], is_sticky=name == names[-2])
    except OSError as error:
        path = show(b"/".join((project, *names[: len(opened)])))
        if error.errno in _NOT_A_DIRECTORY:
            hint = "move it away: files that an apply replaces are kept in a directory of this name"
            raise MudroomError(f"{path} is not a directory", hint) from error
        if error.errno != errno.EACCES:
            raise
        above = show(b"/".join((project, *names[: len(opened) - 1])))
        hint = f"its owner: chmod g+w {above}; or set MUDROOM_STATE to a directory on the project's file system"
        raise MudroomError(f"nothing can be kept at {path}: the directory above it is closed to you", hint) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _share(above: int, made: int, *, is_sticky: bool) -> None:
    """Let all users who may write to the directory ``above`` also write to a directory made in it, if it is this user's
    own.

    Another directory may have been put there meanwhile, so it must be empty except for slots.
    """
    outer, inner = os.fstat(above), os.fstat(made)
    is_group = outer.st_gid == inner.st_gid and not (_has_list(above) or _has_list(made))
    writers = outer.st_mode if is_group else outer.st_mode & ~stat.S_IWGRP
    mode = stat.S_IMODE(inner.st_mode)
    for writer, rights in _SHARED.items():
        if writers & writer:
            mode |= rights
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode |= stat.S_ISVTX if is_sticky else outer.st_mode & stat.S_ISVTX
    if mode == stat.S_IMODE(inner.st_mode) or inner.st_uid != disk.user():
        return
    if all(name == _IGNORE or (name[:1] == b"u" and name[1:].isdigit()) for name in disk.names(made)):
        disk.set_mode_of(made, mode)


def open_slots(record: ApplyRecord) -> int:
    """Return a descriptor for the slots, to be closed by the caller. Raise OSError; MudroomError if they do not belong
    to this user alone, or a link leads there."""
    names = _within_project(record)
    if not names:
        return open_root(record.slots)
    opened = [open_root(record.project)]
    try:
        for name in names[:-1]:
            opened.append(disk.open_beneath(opened[-1], name, O_PATH | disk.O_DIRECTORY))
        opened.append(disk.open_beneath(opened[-1], names[-1], os.O_RDONLY | disk.O_DIRECTORY))
        _require_own(opened[-1], record.slots)
        _require_of(record, opened)
        return opened.pop()
    except OSError as error:
        if error.errno not in _NOT_A_DIRECTORY:
            raise
        raise MudroomError(
            f"{show(record.slots)} is not a directory, or behind a symbolic link", _planted(record.slots)
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _planted(path: bytes) -> str:
    return f"ls -ld {show(path)} shows whose it is; move it away"


def _require_own(slots: int, path: bytes) -> None:
    """Raise MudroomError if others own the slots or may write to them."""
    made = _access(os.fstat(slots))
    if made != (disk.user(), 0) and made != _access_of_new(slots):
        raise MudroomError(f"{show(path)} is not yours alone: it may hold other files than yours", _planted(path))


def _require_of(record: ApplyRecord, opened: list[int]) -> None:
    """Raise MudroomError if the last of these directories holds files that do not belong to this apply. ``opened``:
    from the project to the slots.

    An empty directory needs no mark. Without a mark (an earlier version wrote none) the directory is accepted if no
    other user may rename a directory on the way.
    """
    names = disk.names(opened[-1])
    if not names or _mark_of(record) in names:
        return
    if any(is_mark(name) for name in names) or any(_access(os.fstat(above)) != (disk.user(), 0) for above in opened):
        raise MudroomError(
            f"{show(record.slots)} holds no slots of {record.name}, or those of another", _planted(record.slots)
        )


def _mark_of(record: ApplyRecord) -> bytes:
    return b"%s%s-%d" % (_MARK, record.name.encode(), record.started)


def is_mark(name: bytes) -> bool:
    """Return whether a name in a slot directory is the file that identifies the apply."""
    return name.startswith(_MARK)


def _mark(slots: int, record: ApplyRecord) -> None:
    """Write the mark: an empty file, so that it is durable with its name, as the slots are."""
    with suppress(FileExistsError):
        os.close(disk.open_at(slots, _mark_of(record), os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600))


def _has_list(descriptor: int) -> bool:
    """Return whether a directory has an access control list, including a default list for new entries."""
    if sys.platform != "linux":
        return False
    for name in _ACL:
        try:
            xattr.get(descriptor, name)
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):  # no list, or a file system without lists
                continue
        return True
    return False


def _access(info: os.stat_result) -> tuple[int, int]:
    """Return a directory's owner, and which others may write to it."""
    return info.st_uid, info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _access_of_new(at: int) -> tuple[int, int] | None:
    """Return the access of a new directory made here, or None if none can be made: some file systems have one owner and
    mode for all entries (mount(8), vfat)."""
    name = b".owner-" + os.urandom(8).hex().encode()
    try:
        disk.mkdir(at, name, 0o700)
        try:
            return _access(disk.stat_at(at, name))
        finally:
            disk.rmdir(at, name)
    except OSError:
        return None


def _ignore(at: int) -> None:
    """Write the file that hides this directory from git. An existing file or link with that name stays."""
    try:
        descriptor = disk.open_at(at, _IGNORE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o666)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(b"*\n")


def sync_above(record: ApplyRecord) -> None:
    """Make the slots' name in the project durable, before a project file is moved there."""
    path = record.slots
    while path != record.project:
        path = os.path.dirname(path)
        sync_directory(path)


def remove_empty_slots(record: ApplyRecord) -> None:
    """Remove the slots' directory and the parents made for it in the project, as far as they are empty."""
    names = _within_project(record)
    if not names:
        try:
            os.rmdir(record.slots)
        except OSError:
            return  # gone after an interruption, or not empty
        return
    root = open_root(record.project)
    hiding = {names[-1]: _mark_of(record), names[-2]: _IGNORE}
    with Descriptor(root):
        while names and _remove_empty(root, b"/".join(names[:-1]), names[-1], hiding.get(names[-1])):
            names.pop()


def _remove_empty(root: int, above: bytes, name: bytes, own: bytes | None) -> bool:
    """Remove an empty directory. ``own``: mudroom's file that may be its only entry. Return whether it is gone."""
    try:
        with directory(root, above) as at:
            if own is not None:
                with directory(at, name) as opened:
                    if disk.names(opened) == [own]:
                        disk.unlink(opened, own)
            disk.rmdir(at, name)
    except FileNotFoundError:
        pass  # gone after an interruption
    except OSError:
        return False  # not empty, or not a directory
    return True
