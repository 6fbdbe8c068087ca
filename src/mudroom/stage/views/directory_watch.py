"""Watch the project's directories with inotify(7), so that they need not be examined one by one.

A watch is relied on only where the kernel reports every change: on this machine's file systems (``LOCAL``), while the
mounts in the project stay as they are, and while no directory moves (directories below it report no event, but their
paths change). Everything else is reported as "examine everything again". File contents are not read.

An instance and its watches count against the user's limits (``/proc/sys/fs/inotify``), and the user's editor needs
some, too: a watch takes at most half of the limit.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Sequence

from mudroom.stage import disk
from mudroom.stage.views.preflight import LOCAL, MountPoint, MountTable, filesystem, submounts
from mudroom.typing import NamedTuple

_LIMIT = "/proc/sys/fs/inotify/max_user_watches"

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _MOVE_SELF = 0x02, 0x04, 0x40, 0x80, 0x100, 0x200, 0x800
_UNMOUNT, _IGNORED, _ISDIR = 0x2000, 0x8000, 0x4000_0000
_ONLYDIR, _DONT_FOLLOW, _EXCL_UNLINK = 0x0100_0000, 0x0200_0000, 0x0400_0000
_ASKED = _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _MOVE_SELF | _ONLYDIR | _DONT_FOLLOW | _EXCL_UNLINK
_ALL_AGAIN = _UNMOUNT | _MOVE_SELF
"""A watched directory moved, with everything below it. Lost events are handled the same way; they have the watch number
-1."""

_EVENT = struct.Struct("iIII")  # struct inotify_event: wd, mask, cookie, len; then the name, padded with NULs
_CHUNK = 65_536
_MOST = 64 * _CHUNK
"""Maximum bytes of events to read. Beyond that, examining everything is cheaper."""
_NOT_TO_BE_WATCHED = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENAMETOOLONG)
"""The directory is gone, or this user may not enter it. A change to that state is an event in the directory above."""


class DirectoryChanges(NamedTuple):
    directories: set[bytes]
    """Directories in which an entry appeared, disappeared or changed its mode."""
    is_passing: bool
    """Whether all names are as before: every new file was removed again without a write. git creates and removes a lock
    file in this way when it only reads. A name that was written to counts as lasting, because it may be another file's
    hard link."""


class DirectoryWatch:
    """Used with its owner's lock held, by the process that created it."""

    def __init__(self, root: bytes, directories: int, *, contents: bool = False) -> None:
        """``root``: the absolute path to which watched paths are relative. ``directories``: approximate number of
        directories to watch. ``contents``: whether a write to a file also counts as a change in its directory. Raise
        OSError if the user's limits are too low, or if a file system at or below the root may change without an
        event."""
        self._root, self._process = root, os.getpid()
        self._paths: dict[int, bytes] = {}
        self._room = _room()
        self._asked = _ASKED | (_MODIFY if contents else 0)
        self._libc = ctypes.CDLL(None, use_errno=True)
        if directories > self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._table = MountTable()
        self._mounts = self._table.mounts()
        if not is_told(root, self._mounts):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        self._identity = self._identify()
        self._events = self._libc.inotify_init1(disk.O_NONBLOCK | disk.O_CLOEXEC)
        if self._events < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def close(self) -> None:
        os.close(self._events)
        self._table.close()

    def add(self, path: bytes) -> None:
        """Watch a directory from now on. Raise OSError if this directory, or any directory, cannot be watched; a
        directory that is gone or closed to this user is left out."""
        full = self._root + b"/" + path if path else self._root
        if len(self._paths) >= self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        number = self._libc.inotify_add_watch(self._events, full, self._asked)
        if number >= 0:
            # the watch is on the inode: a directory mounted at two places, or just moved, keeps its number
            if self._paths.setdefault(number, path) != path:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        elif (reason := ctypes.get_errno()) not in _NOT_TO_BE_WATCHED:
            raise OSError(reason, os.strerror(reason))

    def changed(self) -> DirectoryChanges | None:
        """Return the changes since the last call. None: any directory may have changed, now and later; the watch is no
        longer usable."""
        # A forked child shares the inotify queue: reading there would take events away from the owner.
        if os.getpid() != self._process or not self._has_same_mounts():
            return None
        if self._identify() != self._identity:
            return None
        found: set[bytes] = set()
        came: dict[tuple[int, bytes], bool] = {}  # new files, and whether they still exist
        size, lasting = 0, False
        while size < _MOST:
            try:
                data = os.read(self._events, _CHUNK)
            except BlockingIOError:
                return DirectoryChanges(found, not lasting and not any(came.values()))
            size += len(data)
            for number, mask, name in _parse(data):
                path = self._paths.get(number)
                if path is None or mask & _ALL_AGAIN:
                    return None
                found.add(path)
                is_there = mask == _CREATE
                if is_there or (mask == _DELETE and (number, name) in came):
                    came[number, name] = is_there
                else:
                    lasting = True
                if mask & _IGNORED:
                    del self._paths[number]
                elif mask & _ISDIR and name:
                    found.add(path + b"/" + name if path else name)
        return None

    def _has_same_mounts(self) -> bool:
        """Mounts elsewhere do not matter. One that covers the root changes its identity."""
        before, now = self._mounts, self._table.mounts()
        if now is before:
            return True
        self._mounts = now
        root = self._root
        return not (submounts(root, before) or submounts(root, now)) and filesystem(root, before) == filesystem(
            root, now
        )

    def _identify(self) -> tuple[int, int]:
        """Return the root's device and inode: moving a directory above the root is not an event."""
        try:
            info = os.stat(self._root)
        except OSError:
            return (0, 0)
        return info.st_dev, info.st_ino


def _parse(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield each event's watch number, mask and name (inotify(7))."""
    at = 0
    while at < len(data):
        number, mask, _cookie, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield number, mask, data[at - length : at].rstrip(b"\0")


def is_told(root: bytes, table: Sequence[MountPoint]) -> bool:
    """Return whether every change at or below the root is an event."""
    kinds = [filesystem(root, table), *(mount.kind for mount in submounts(root, table))]
    return LOCAL.issuperset(kinds)


def _room() -> int:
    with open(_LIMIT, "rb") as stream:
        return int(stream.read()) // 2
