"""The module files that a keeper has loaded and the tables that they read, and whether they have changed since.

Rules of this file:
1. A command is run by the code that is on disk when it arrives. In doubt every file is checked by stat(2), which takes
   more than a millisecond; a difference ends the keeper.
2. The check is skipped while inotify(7) has reported no event in their directories: a file created, removed, renamed,
   written to, or its attributes changed. Each directory's path must still lead to it, too. A directory inside a watched
   directory stays there while the outer one has no event and no file system is mounted, so a waiting process checks it
   ahead (``rest``).
3. The watch counts only where the kernel reports every change: on local file systems. A write through a mapping
   (mmap(2)), or through a name in another directory (a hard link), is not reported. The keeper therefore checks all
   files every few seconds anyway.
4. The keeper and its command processes share the watch. An event stays there until the keeper takes it; the keeper sets
   ``_doubt`` before, and clears it once it has checked all files. A command checks the watch first and ``_doubt``
   second, so it sees the event or the doubt.
5. The client does not know which mudroom its interpreter would load. It would load another one if there were one
   in an earlier ``sys.path`` directory, such as the user's own packages, or in a directory that a path file (*.pth)
   there adds, as an editable installation does. These are checked each time.
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
"""Suffix of directories with path files: site-packages, dist-packages (site.py)."""

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE, _SELF = 0x02, 0x04, 0xC0, 0x100, 0x200, 0xC00
_ONLYDIR = 0x0100_0000
_ASKED = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE | _SELF | _ONLYDIR
"""Event masks and flags for inotify(7)."""
_LOCAL = frozenset(
    [0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x73717368, 0xE0F5E1E2]
)
"""File system types (statfs(2)): ext4, xfs, btrfs, tmpfs, overlay, f2fs, zfs, bcachefs, squashfs, erofs."""
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
        return _NONE  # removed meanwhile, or a dangling link


def _identity(directory: str) -> tuple[int, int]:
    found = os.stat(directory)
    return found.st_dev, found.st_ino


def _are_there(directories: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether each path still leads to the same directory."""
    try:
        return all(_identity(path) == known for path, known in directories.items())
    except OSError:
        return False


class Code:
    """Owner: the keeper's only thread. A command's process has a copy, and its thread calls only ``is_current``."""

    def __init__(self, began: int, before: Sequence[str] = (), more: Iterable[str] = ()) -> None:
        """``began``: the time in nanoseconds before the first file was loaded. ``before``: directories that must
        contain no other mudroom. ``more``: tables, and files loaded by processes with their own interpreter."""
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
        """Descriptor that becomes readable when ``note_events`` must be called; -1 if there is no watch."""
        return self._watch.descriptor

    def note(self) -> bool:
        """Note the files of all modules that are loaded now. Return False if one may be newer than the loaded code."""
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        fresh = {os.path.realpath(sys.executable), *(file for file in files if file), *self._more} - self._stamps.keys()
        self.known = set(sys.modules)
        try:
            self._watch.add(_directories(fresh))  # first: a change after the check is then reported
            self._stamps |= {path: _stamp(path) for path in fresh}
        except OSError:
            return False  # removed meanwhile
        stamps = [*(self._stamps[path] for path in fresh), *self._path_files.values()]
        return all(stamp[3] < self._began for stamp in stamps)

    def is_current(self) -> bool:
        """Return whether all files are still as they were loaded."""
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
                continue  # the directory does not exist yet
            for name in names:
                if name.endswith(".pth"):
                    path = f"{directory}/{name}"
                    found[path] = _stamp_or_none(path)
        return found

    def rest(self) -> None:
        """Prepare ``is_current`` ahead, in a process that waits for a command."""
        self._watch.rest()

    def looks_current(self) -> bool:
        """Return whether all files are still as they were loaded, after checking each."""
        try:
            return not self._is_hidden() and all(_stamp(path) == stamp for path, stamp in self._stamps.items())
        except OSError:
            return False

    def note_events(self) -> bool:
        """Take the events. Return whether all files are still as they were loaded."""
        self._watch.take_events()
        if not self.looks_current():
            return False
        self._watch.clear_doubt()
        return True


def _directories(files: Iterable[str]) -> set[str]:
    """Return the directories in which changes to these files are reported."""
    directories = set()
    for file in files:
        directories.add(os.path.dirname(file))
        if os.path.islink(file):
            directories.add(os.path.dirname(os.path.realpath(file)))
    return directories


class CodeWatch:
    """Owner: as for ``Code``."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._directories: dict[str, tuple[int, int]] = {}
        self._outermost: dict[str, tuple[int, int]] = {}
        """Directories that are not inside another watched directory; set by ``rest``."""
        self._mounts = -1
        """Descriptor marked with POLLPRI once the mounts have changed since ``rest`` (proc_pid_mounts(5)); -1: ``rest``
        was not called."""
        self._doubt = mmap.mmap(-1, 1)
        """Shared with forked processes. Not 0: events were taken, and the files have not been checked yet."""
        self._poller = select.poll()
        if self.descriptor >= 0:
            self._poller.register(self.descriptor, select.POLLIN)

    def add(self, directories: Iterable[str]) -> None:
        """Watch directories from now on; if one cannot be watched, none counts as watched. Raise OSError if one is
        gone."""
        for directory in directories:
            if self.descriptor < 0 or directory in self._directories:
                continue
            self._directories[directory] = _identity(directory)
            path = os.fsencode(directory)
            if not self._is_told(path) or self._libc.inotify_add_watch(self.descriptor, path, _ASKED) < 0:
                os.close(self.descriptor)  # a limit is reached: no watch is better than a wrong answer
                self.descriptor = -1

    def is_quiet(self) -> bool:
        """Return whether no event has occurred in any directory."""
        if self.descriptor < 0:
            return False
        ready = {descriptor for descriptor, _events in self._poller.poll(0)}
        if self.descriptor in ready or self._doubt[0]:
            return False
        is_mounted = self._mounts < 0 or self._mounts in ready
        return _are_there(self._directories if is_mounted else self._outermost)

    def rest(self) -> None:
        """Check all directories, so that ``is_quiet`` need not until a file system is mounted. Called once, by one
        process."""
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
        """Return whether the directory is on a file system for which the kernel reports every change."""
        found = ctypes.create_string_buffer(_STATFS)
        size = ctypes.sizeof(ctypes.c_long)
        return self._libc.statfs(path, found) == 0 and int.from_bytes(found.raw[:size], sys.byteorder) in _LOCAL
