"""Test, by inotify(7), whether a project may have changed in a way that a mounted overlay does not see.

An overlay caches names, modes and sizes of the files below it (Documentation/filesystems/overlayfs.rst: changes to the
underlying files while it is mounted are not followed). The cache is dropped before a command unless it is certain that
no file has been created, removed, renamed, chmod'ed or written to since. Contents are read from the files themselves,
but copy_file_range(2) ends at the cached size (generic_copy_file_checks in fs/read_write.c): cp would cut a file that
has grown.

A file that came and went between two looks is a change only for a mount that was in use in between: it may have cached
the name. ``git status`` creates and removes ``.git/index.lock``, in many prompts after each command.

Every directory is watched, even those that are not searched for secrets. In doubt the answer is that something changed:
without a watch, while one begins, when events were lost, when a directory moved (``directory_watch.py``). A change
through another hard link, outside the project, is not reported.
"""

from __future__ import annotations

import _thread
import errno
import os
from collections.abc import Iterable

from mudroom.stage.views.directory_watch import DirectoryChanges, DirectoryWatch
from mudroom.typing import NamedTuple

MOST = 5_000
"""Directories that are watched. A watch takes about 1 KB of kernel memory, and counts against the user's limit."""
_QUIET = 3
"""Looks before a watch begins, doubled each time a watch was lost."""
_MOST_QUIET = 64


class TreeLook(NamedTuple):
    """The project at a look. Equal numbers mean an equal project."""

    changed: int
    """Equal to an earlier look's: nothing has changed in between."""
    lasting: int
    """Equal to an earlier look's: names and files are as they were then."""


class TreeWatch:
    """Thread-safe: ``_lock`` guards everything, and is held while the project is walked."""

    def __init__(self, root: bytes) -> None:
        """``root``: the project's absolute path."""
        self._root = root
        self._lock = _thread.allocate_lock()
        self._watch: DirectoryWatch | None = None
        self._known: set[bytes] = set()
        self._now = TreeLook(0, 0)
        self._asked = 0
        self._patience = _QUIET

    def look(self, *, begins: bool = True) -> TreeLook:
        """Look at the project. ``begins``: a watch may begin, if it is time for one."""
        with self._lock:
            changes = self._changes(self._watch) if self._watch is not None else None
            if changes is not None and not changes.directories:
                return self._now
            is_lasting = changes is None or not changes.is_passing
            self._now = TreeLook(self._now.changed + 1, self._now.lasting + is_lasting)
            if self._watch is None and begins:
                self._asked += 1
                if self._asked >= self._patience:
                    self._begin()
            return self._now

    def close(self) -> None:
        with self._lock:
            self._end()

    def _changes(self, watch: DirectoryWatch) -> DirectoryChanges | None:
        changes = watch.changed()
        if changes is not None and not changes.is_passing:
            try:
                self._add(watch, changes.directories)
            except OSError:
                changes = None
        if changes is None:
            self._give_up()
        return changes

    def _begin(self) -> None:
        try:
            watch = self._watch = DirectoryWatch(self._root, 1, contents=True)
            self._add(watch, [b""])
        except OSError:  # too many directories, the user's watches used up, or a file system that reports no events
            self._give_up()

    def _add(self, watch: DirectoryWatch, paths: Iterable[bytes]) -> None:
        """Watch these directories and those below that are not yet known. Raise OSError if not all can be watched. A
        directory that is closed to this user counts, too: root may change its contents, and a command may open it in
        its fork."""
        pending = list(paths)
        while pending:
            path = pending.pop()
            if len(self._known) >= MOST:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            # Watch first, then list: a directory created in between is found by one or the other.
            watch.add(path)
            self._known.add(path)
            prefix = path + b"/" if path else b""
            try:
                with os.scandir(self._root + b"/" + path) as scan:
                    below = [prefix + entry.name for entry in scan if entry.is_dir(follow_symlinks=False)]
            except (FileNotFoundError, NotADirectoryError):
                self._known.discard(path)
                continue  # gone, or a file: an event of the directory above follows
            pending += [name for name in below if name not in self._known]

    def _give_up(self) -> None:
        self._end()
        self._asked, self._patience = 0, min(2 * self._patience, _MOST_QUIET)

    def _end(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._known.clear()
