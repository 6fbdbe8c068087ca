"""File tools on a fork: a write buffer over the fork's files, flushed into the fork's layers.

    files of the fork  =  buffer (memory)  over  upper layer  over  sealed layers  over  base

The original of a path is kept at its first change, with the content that the change started from. ``flush`` writes the
buffer into the upper layer (or the staged copy), where processes see it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mudroom.core.confinement.fallback import Mode
from mudroom.core.tree.entry import Entry
from mudroom.stage.beneath import open_root
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.buffer.flush import FlushTarget
from mudroom.stage.layers.layer import LayerWriter, remove_tree
from mudroom.stage.source import Source
from mudroom.stage.views.real_directory import PlainWriter
from mudroom.vault.forks.collection import CollectedCommand, gather, view_of
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.moment import command_start
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault


class _Shown:
    """The fork's files, as one source that survives reopening the fork."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def look(self, path: bytes) -> Entry | None:
        return self.source.look(path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        return self.source.names(path)

    def open(self, path: bytes) -> int:
        return self.source.open(path)


class Editor:
    """File tools on one fork. Raise OSError if the fork cannot be opened. Close it; unflushed changes are lost then.

    ``refresh`` opens the fork again with the buffer's lock held, ``flush`` with the fork's.
    """

    def __init__(self, vault: Vault, fork: Fork, clock: Callable[[], int]) -> None:
        self._vault, self._fork, self._clock = vault, fork, clock
        self._spill = fork.path + b"/spill"
        os.makedirs(self._spill, mode=0o700, exist_ok=True)
        self._open()
        self._place = open_root(fork.path)  # an open descriptor keeps its inode from being reused
        info = os.fstat(self._place)
        self._identity = (info.st_ino, info.st_dev)
        self._shown = _Shown(self._opened.merged())
        self.buffer = Buffer(self._shown, keep=self._keep, spill=self._spill, clock=clock)

    def _open(self) -> None:
        self._opened = OpenFork(self._vault, self._fork)
        self._ground = self._opened.ground()
        self._changed = {change.path for change in self._ground.before.changes}

    @property
    def is_there(self) -> bool:
        """Whether the fork still exists: it may have been discarded, and another fork made with its name."""
        try:
            info = os.stat(self._fork.path)
        except FileNotFoundError:
            return False
        return (info.st_ino, info.st_dev) == self._identity

    def refresh(self) -> None:
        """Reopen the fork after a command has run in it, or its layers have changed."""
        with self.buffer.lock:  # a reading thread uses the descriptors closed here
            self._opened.close()
            self._open()
            self._shown.source = self._opened.merged()

    def close(self) -> None:
        self.buffer.clear()
        self._opened.close()
        if self.is_there and os.path.isdir(self._spill):
            remove_tree(self._spill)
        os.close(self._place)

    def _keep(self, path: bytes) -> None:
        """Keep the original of a path that the fork changes first. Not needed on a snapshot, which never changes."""
        ground = self._ground
        if ground.frozen or path in self._changed or path in ground.landed or path in ground.masked:
            return
        entry = ground.base.look(path)
        if entry is None or entry.kind != "file":
            ground.originals.keep(path, entry)
            return
        opened = ground.base.open(path)
        try:
            ground.originals.keep_file(path, entry, opened)
        finally:
            os.close(opened)

    def flush(self) -> list[bytes]:
        """Write the buffer into the fork and update its record.

        Hold the fork's lock; no command may be running in it. Return paths that cannot be staged: sockets, and files
        that are gone from the layers below.
        """
        if not self.buffer.changed:
            return []
        self._ground.originals.save()
        started = command_start(self._vault.path)
        with self._writer() as writer:
            lost = self.buffer.flush(writer)
        with OpenFork(self._vault, self._fork) as opened:
            mode: Mode = "copy" if self._fork.has_copy else "overlay"
            view = view_of(self._vault, self._fork, opened, mode)
            gather(self._fork, opened, view, CollectedCommand((b"(file tools)",), 0, self._clock()), started)
        self.refresh()
        return lost

    @contextmanager
    def _writer(self) -> Iterator[FlushTarget]:
        if self._fork.has_copy:
            root = open_root(self._fork.contents[0])
        else:
            upper = self._fork.upper
            if not os.path.isdir(upper):
                os.mkdir(upper, 0o700)
                top = self._opened.lower.look(b"")
                os.chmod(upper, top.mode if top is not None else 0o755)
            root = open_root(upper)
        try:
            yield PlainWriter(root) if self._fork.has_copy else LayerWriter(root, self._opened.lower)
        finally:
            os.close(root)
