"""Metadata of a file that no ``Entry`` has: its attributes and the flags of chattr(1). ``core/tree/landing_form.py``
says what becomes of them.

Linux only. Elsewhere a file has neither here: the lists of macOS and Windows are of another kind.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.landing_form import is_kept, is_left
from mudroom.stage import disk
from mudroom.stage.view import NO_ATTRIBUTES, Attributes
from mudroom.typing import NamedTuple, TypeVar

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS: ioctl_iflags(2)."""
_GONE = (errno.EOPNOTSUPP, errno.ENODATA, errno.ENOENT)
"""The file system has no attributes, or the attribute or the file is gone."""
_Read = TypeVar("_Read")


class FileForm(NamedTuple):
    """What a file has beside its content and its mode."""

    user: int
    group: int
    attributes: Attributes
    flags: int


def attributes_at(at: int, name: bytes, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Return an entry's attributes with these names; the overlay's without their values. A link is not followed. The
    entry need not be readable, except for ``user.`` attributes. Raise OSError as listxattr(2) and getxattr(2) do."""
    if sys.platform != "linux":
        return {}
    path, found = b"/proc/self/fd/%d/%s" % (at, name), {}
    names: list[str] = _or_gone(os.listxattr, path) or []
    for each in filter(wanted, names):
        is_mark = each.startswith("user.overlay.")
        value = b"" if is_mark else _or_gone(os.getxattr, path, each)
        if value is not None:
            found[each] = value
    return found


def _or_gone(read: Callable[..., _Read], path: bytes, *attribute: str) -> _Read | None:
    try:
        return read(path, *attribute, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return None


def set_attribute(at: int, name: bytes, attribute: str, value: bytes | None) -> None:
    """Set an attribute, or remove it if ``value`` is None. Raise OSError as setxattr(2) does."""
    path = b"/proc/self/fd/%d/%s" % (at, name)
    if value is None:
        os.removexattr(path, attribute, follow_symlinks=False)
    else:
        os.setxattr(path, attribute, value, follow_symlinks=False)


def flags_at(at: int, name: bytes) -> int:
    """Return the flags of chattr(1) of a regular file; 0 if they cannot be read."""
    return _flags(at, name, None)


def set_flags(at: int, name: bytes, flags: int, mask: int) -> None:
    """Set the flags in ``mask``. Raise OSError if the file system, or the user's rights, forbid it."""
    _flags(at, name, (flags, mask))


def _flags(at: int, name: bytes, change: tuple[int, int] | None) -> int:
    if sys.platform != "linux":
        return 0
    import fcntl

    try:
        opened = disk.open_at(at, name, os.O_RDONLY | disk.O_NONBLOCK | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    except OSError:
        if change is not None:
            raise
        return 0
    try:
        flags = int.from_bytes(fcntl.ioctl(opened, _GET_FLAGS, bytes(8))[:4], sys.byteorder)
        if change is not None and (flags ^ change[0]) & change[1]:
            flags = flags & ~change[1] | change[0] & change[1]
            fcntl.ioctl(opened, _SET_FLAGS, flags.to_bytes(8, sys.byteorder))
        return flags
    except OSError:
        if change is not None:
            raise
        return 0
    finally:
        os.close(opened)


def form_at(at: int, name: bytes, entry: Entry, wanted: Callable[[str], bool] = is_kept) -> FileForm:
    """Return a regular file's form with the wanted attributes. ``entry``: its entry."""
    return FileForm(entry.uid, entry.gid, attributes_at(at, name, wanted), flags_at(at, name))


def is_own_group(group: int) -> bool:
    """Return whether the user may give a file to this group: chown(2)."""
    return not disk.user() or group == disk.group() or (hasattr(os, "getgroups") and group in os.getgroups())


def left_at(at: int, name: bytes) -> Attributes:
    """Return the attributes of a fork's entry that do not land, without the overlay's."""
    return attributes_at(at, name, lambda name: is_left(name) and not name.startswith("user.")) or NO_ATTRIBUTES
