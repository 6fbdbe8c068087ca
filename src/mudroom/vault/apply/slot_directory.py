"""The directory of an apply's slots: in the vault, or in ``.mudroom/apply`` of a project on another file system.

In a project each directory is opened below the one above it, and no link is followed: a clone may have any entry in
``.mudroom``.
"""

from __future__ import annotations

import errno
import os

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk
from mudroom.stage.beneath import directory, open_root
from mudroom.vault.record import ApplyRecord
from mudroom.vault.sync import sync_directory

_IGNORE = b".gitignore"
"""The slots must be on the project's file system, but must not be committed."""
_NOT_A_DIRECTORY = (errno.ELOOP, errno.ENOTDIR)


def make_slots(record: ApplyRecord, *, new: bool = False) -> None:
    """Make it. ``new``: raise FileExistsError if it is there: in a project it may be another vault's, whose files would
    land in the place of the reviewed ones."""
    within = _within_project(record)
    if within:
        _make_in_project(record.project, within, new=new)
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


def _make_in_project(project: bytes, names: list[bytes], *, new: bool) -> None:
    opened = [open_root(project)]
    try:
        for name in names:
            is_last = len(opened) == len(names)
            if is_last:
                _ignore(opened[-1])
            try:
                disk.mkdir(opened[-1], name, 0o700 if is_last else 0o777)
            except FileExistsError:
                if new and is_last:
                    raise
            opened.append(disk.open_beneath(opened[-1], name, os.O_RDONLY | disk.O_DIRECTORY))
    except OSError as error:
        path = show(b"/".join((project, *names[: len(opened)])))
        if error.errno in _NOT_A_DIRECTORY:
            hint = "move it away: files that an apply replaces are kept in a directory of this name"
            raise MudroomError(f"{path} is not a directory", hint) from error
        if error.errno != errno.EACCES:
            raise
        hint = "another user's? let its group write, or set MUDROOM_STATE to a directory on the project's file system"
        raise MudroomError(f"nothing can be kept at {path}: the directory above it is closed to you", hint) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _ignore(at: int) -> None:
    """Write the file that hides this directory from git. A file or link of its name stays as it is."""
    try:
        descriptor = disk.open_at(at, _IGNORE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o666)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(b"*\n")


def sync_above(record: ApplyRecord) -> None:
    """Make the name of the slots in the project durable, before a file of the project is moved there."""
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
            return  # it is gone: interrupted in between; or not empty
        return
    root = open_root(record.project)
    try:
        hidden = names[-2]
        while names and _remove_empty(root, b"/".join(names[:-1]), names[-1], hidden=names[-1] == hidden):
            names.pop()
    finally:
        os.close(root)


def _remove_empty(root: int, above: bytes, name: bytes, *, hidden: bool) -> bool:
    """Remove an empty directory. ``hidden``: also one with the file that hides it. Return whether it is gone."""
    try:
        with directory(root, above) as at:
            if hidden:
                with directory(at, name) as opened:
                    if disk.names(opened) == [_IGNORE]:
                        disk.unlink(opened, _IGNORE)
            disk.rmdir(at, name)
    except FileNotFoundError:
        pass  # interrupted in between
    except OSError:
        return False  # it is not empty, or no directory
    return True
