"""Renames that never replace a file, and exchanges, with fallbacks for file systems that have only rename(2)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from mudroom.stage import disk
from mudroom.stage.beneath import look

At = tuple[int, bytes]
"""A name in an open directory."""

SWAP = b".swap"
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
_NO_EXCHANGE = (*_UNSUPPORTED, errno.EXDEV)
"""fuse-overlayfs cannot exchange a file from a lower layer with a directory. Between two mounts even the first rename
fails."""
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK)
"""On macOS ENOTSUP and EOPNOTSUPP differ, and renameatx_np(2) and linkat(2) give ENOTSUP."""


def move(old: At, new: At) -> None:
    """Rename without replacing an existing name. Raise FileExistsError, or OSError as rename(2) does.

    Without RENAME_NOREPLACE (NFS, some FUSE) the check precedes the rename, and a file created in between would be
    replaced; where hard links exist, linkat(2) closes that gap. (rename(2) on a directory replaces only an empty one.)
    If interrupted between the link and the unlink, the file has both names.

    ``old`` must be mudroom's: a file that another process puts there in between would be unlinked. Use ``take`` for the
    user's files.
    """
    _rename_new(old, new, _move_without_flags)


def take(old: At, new: At) -> None:
    """Rename as ``move`` does, into a directory in which only mudroom creates names."""
    _rename_new(old, new, _rename_checked)


def _rename_new(old: At, new: At, otherwise: Callable[[At, At], None]) -> None:
    try:
        disk.rename_new(*old, *new)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        otherwise(old, new)


def _rename_checked(old: At, new: At) -> None:
    if look(*new) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new[1])
    disk.rename(old[0], old[1], new[0], new[1])


def _move_without_flags(old: At, new: At) -> None:
    entry = look(*old)
    if entry is not None and entry.kind != "directory":
        try:
            # linkat(2) fails if the name exists, so no file created meanwhile is replaced
            disk.link(old[0], old[1], new[0], new[1])
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            _unlink_old(old, new)
            return
    _rename_checked(old, new)


def _unlink_old(old: At, new: At) -> None:
    """Second half of a move by link: remove the old name."""
    try:
        disk.unlink(old[0], old[1])
    except OSError:
        disk.unlink(new[0], new[1])
        raise


def exchange(one: At, other: At) -> None:
    """Swap two names atomically.

    Without RENAME_EXCHANGE, use three moves through ``one`` + ``.swap``, in an order that keeps both contents on disk
    at every moment; ``mend`` finishes them after an interruption. Raise FileExistsError if another process creates a
    file at ``other`` in between: that file stays, and the earlier file is at ``one`` + ``.swap``.
    """
    try:
        disk.exchange(*one, *other)
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        aside = aside_of(one)
        take(other, aside)
        try:
            move(one, other)
        except OSError:
            if look(*other) is None:
                move(aside, other)
            raise
        take(aside, one)


def aside_of(one: At) -> At:
    """Return the temporary name of the other file during ``exchange``."""
    return (one[0], one[1] + SWAP)


def mend(one: At, other: At) -> bool:
    """Finish an interrupted ``exchange`` or take it back, so that each file has one of the two names.

    Return False if a third file was created at ``other`` meanwhile: then that file stays, and so does the file set
    aside.
    """
    aside = aside_of(one)
    if look(*aside) is None:
        return True
    for double in (aside, one):  # a move by link, interrupted between its halves
        if is_same_file(double, other):
            disk.unlink(double[0], double[1])
    if look(*aside) is None:
        return True
    if look(*one) is None:
        take(aside, one)
    elif look(*other) is None:
        move(aside, other)
    else:
        return False
    return True


def is_same_file(one: At, other: At) -> bool:
    """Whether both names exist and are the same file."""
    a, b = look(*one), look(*other)
    return a is not None and b is not None and (a.device, a.inode, a.kind) == (b.device, b.inode, b.kind)
