"""The files of the modules that a keeper has loaded, and whether they are still what was loaded.

Rules of this file:
1. A command is run by what is on disk when it comes. In doubt all files are looked at (stat(2)), which takes more than
   a millisecond; a difference ends the keeper.
2. They need no look while nothing has happened in their directories, told by inotify(7): a file made, removed, renamed,
   written to, or its attributes changed. The path of each directory has to lead to it still. That of a directory in a
   watched one does while that one has no event and no file system is mounted, so a process that waits looks at it
   ahead (``rest``).
3. The watch counts only where the kernel tells of every change: on file systems of this machine. A write through a
   mapping (mmap(2)), or through a name in another directory (a hard link), is not told. The keeper looks at all files
   every few seconds nevertheless.
4. The keeper and the processes of its commands share the watch. An event stays there until the keeper takes it, which
   sets ``_doubt`` before, and clears it once it has looked at all files. A command looks at the watch first and at
   ``_doubt`` second: so it sees one of them.
5. A native client does not know which mudroom its interpreter would load. It would be another one if there were one in
   a directory of ``sys.path`` that comes before, as that of the user's own packages, or in one that a path file (*.pth)
   there adds, as of an editable installation. These are looked at each time.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import sys
from collections.abc import Iterable, Mapping, Sequence

Stamp = tuple[int, int, int, int]
_NONE: Stamp = (0, 0, 0, 0)
_PACKAGES = "-packages"
"""The end of the name of a directory with path files: site-packages, dist-packages (site.py)."""

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE, _SELF = 0x02, 0x04, 0xC0, 0x100, 0x200, 0xC00
_ONLYDIR = 0x0100_0000
_ASKED = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE | _SELF | _ONLYDIR
"""Of inotify(7)."""
_LOCAL = frozenset(
    [0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x73717368, 0xE0F5E1E2]
)
"""Types of file systems (statfs(2)): ext4, xfs, btrfs, tmpfs, overlay, f2fs, zfs, bcachefs, squashfs, erofs."""
_MOST_EVENTS = 1 << 16
_STATFS = 256
"""Bytes: more than a ``struct statfs`` has. Its first member, a long, is the type."""


def _stamp(path: str) -> Stamp:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _stamp_or_none(path: str) -> Stamp:
    try:
        return _stamp(path)
    except OSError:
        return _NONE  # removed meanwhile, or a link to nothing


def _identity(directory: str) -> tuple[int, int]:
    found = os.stat(directory)
    return found.st_dev, found.st_ino


def _are_there(directories: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether each path leads to the directory that it led to."""
    try:
        return all(_identity(path) == known for path, known in directories.items())
    except OSError:
        return False


class Code:
    """Owner: the keeper's only thread; in the process of a command that one's, which only calls ``is_current``."""

    def __init__(self, began: int, before: Sequence[str] = (), more: Iterable[str] = ()) -> None:
        """``began``: the time in nanoseconds before the first of them was loaded. ``before``: directories in which no
        other mudroom may be. ``more``: files that are loaded by processes of the keeper with an interpreter of their
        own."""
        self._began = began
        self._more = tuple(more)
        self._others = [directory + name for directory in before for name in ("/mudroom/__init__.py", "/mudroom.py")]
        self._sites = [directory for directory in before if directory.rstrip("/").endswith(_PACKAGES)]
        self._path_files = self._look_for_path_files()
        self._stamps: dict[str, Stamp] = {}
        self.known = set(sys.modules)
        self._watch = CodeWatch()

    @property
    def events(self) -> int:
        """The descriptor that is readable when ``note_events`` is to be called; -1: none."""
        return self._watch.descriptor

    def note(self) -> bool:
        """Note the files of all modules that are loaded now. Return False if one may be newer than what was loaded."""
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        fresh = {os.path.realpath(sys.executable), *(file for file in files if file), *self._more} - self._stamps.keys()
        self.known = set(sys.modules)
        try:
            self._watch.add(_directories(fresh))  # first: what changes after the look is told
            self._stamps |= {path: _stamp(path) for path in fresh}
        except OSError:
            return False  # removed meanwhile
        stamps = [*(self._stamps[path] for path in fresh), *self._path_files.values()]
        return all(stamp[3] < self._began for stamp in stamps)

    def is_current(self) -> bool:
        """Return whether all files are as they were loaded."""
        return (self._watch.is_quiet() and not self._is_hidden()) or self.looks_current()

    def _is_hidden(self) -> bool:
        """Return whether another mudroom may be found before this one."""
        return any(map(os.path.lexists, self._others)) or self._look_for_path_files() != self._path_files

    def _look_for_path_files(self) -> dict[str, Stamp]:
        found: dict[str, Stamp] = {}
        for directory in self._sites:
            try:
                names = os.listdir(directory)
            except OSError:
                continue  # there is none yet
            for name in names:
                if name.endswith(".pth"):
                    path = f"{directory}/{name}"
                    found[path] = _stamp_or_none(path)
        return found

    def rest(self) -> None:
        """In a process that waits for a command: look ahead at what needs no look then."""
        self._watch.rest()

    def looks_current(self) -> bool:
        """Return the same after a look at each file."""
        try:
            return not self._is_hidden() and all(_stamp(path) == stamp for path, stamp in self._stamps.items())
        except OSError:
            return False

    def note_events(self) -> bool:
        """Take the events. Return whether all files are as they were loaded."""
        self._watch.take_events()
        if not self.looks_current():
            return False
        self._watch.clear_doubt()
        return True


def _directories(files: Iterable[str]) -> set[str]:
    """Return the directories in which a change of these files is told."""
    directories = set()
    for file in files:
        directories.add(os.path.dirname(file))
        if os.path.islink(file):
            directories.add(os.path.dirname(os.path.realpath(file)))
    return directories


class CodeWatch:
    """Owner: as of ``Code``."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._directories: dict[str, tuple[int, int]] = {}
        self._outermost: dict[str, tuple[int, int]] = {}
        """Those that are in no other one, after ``rest``."""
        self._mounts = -1
        """Marked with POLLPRI by a change of the mounts since ``rest`` (proc_pid_mounts(5)); -1: it was not called."""
        self._doubt = mmap.mmap(-1, 1)
        """Shared with forked processes. Not 0: events were taken, and the files were not looked at yet."""
        self._poller = select.poll()
        if self.descriptor >= 0:
            self._poller.register(self.descriptor, select.POLLIN)

    def add(self, directories: Iterable[str]) -> None:
        """Watch directories from now on; if that is not possible for one, none counts as watched. Raise OSError if one
        is gone."""
        for directory in directories:
            if self.descriptor < 0 or directory in self._directories:
                continue
            self._directories[directory] = _identity(directory)
            path = os.fsencode(directory)
            if not self._is_told(path) or self._libc.inotify_add_watch(self.descriptor, path, _ASKED) < 0:
                os.close(self.descriptor)  # no limit is worth a wrong answer
                self.descriptor = -1

    def is_quiet(self) -> bool:
        """Return whether nothing has happened in any of the directories."""
        if self.descriptor < 0:
            return False
        ready = {descriptor for descriptor, _events in self._poller.poll(0)}
        if self.descriptor in ready or self._doubt[0]:
            return False
        is_mounted = self._mounts < 0 or self._mounts in ready
        return _are_there(self._directories if is_mounted else self._outermost)

    def rest(self) -> None:
        """Look at all directories, so that ``is_quiet`` need not while nothing is mounted. Used by one process once."""
        if self.descriptor < 0 or self._mounts >= 0:
            return
        mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        inside = {path for path in self._directories if os.path.dirname(path) in self._directories}
        links = {path for path in inside if os.path.islink(path)}
        self._outermost = {path: self._directories[path] for path in self._directories.keys() - inside | links}
        if _are_there(self._directories):
            self._mounts = mounts
            self._poller.register(mounts, select.POLLPRI)
        else:
            os.close(mounts)

    def take_events(self) -> None:
        self._doubt[0] = 1
        try:
            while len(os.read(self.descriptor, _MOST_EVENTS)) > _MOST_EVENTS // 2:
                pass
        except BlockingIOError:
            pass

    def clear_doubt(self) -> None:
        self._doubt[0] = 0

    def _is_told(self, path: bytes) -> bool:
        """Return whether the directory is on a file system that nobody changes without a word."""
        found = ctypes.create_string_buffer(_STATFS)
        size = ctypes.sizeof(ctypes.c_long)
        return self._libc.statfs(path, found) == 0 and int.from_bytes(found.raw[:size], sys.byteorder) in _LOCAL
