"""File tools on a fork: a write buffer over the fork's files, flushed into the fork's layers.

    files of the fork  =  buffer (memory)  over  upper layer  over  sealed layers  over  base

A path's original is kept at its first change, with the content that the change started from. ``flush`` writes the
buffer into the upper layer (or the staged copy), where processes see it.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from mudroom.core.confinement.fallback import Mode
from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import is_below
from mudroom.stage import disk
from mudroom.stage.beneath import O_PATH, open_layer, open_root
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.buffer.files import version
from mudroom.stage.buffer.flush import FlushTarget
from mudroom.stage.layers.layer import LayerWriter, remove_tree
from mudroom.stage.source import NothingBelow, Source
from mudroom.vault.forks.collection import CollectedCommand, gather, view_of, work_place
from mudroom.vault.forks.damage import require_files
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.lock import LOCK_EX, try_lock
from mudroom.vault.moment import command_start
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_all

# --- A fork's directory for contents that do not fit into one write buffer's memory ---
#     forks/<name>/spill/<random>/    locked (flock(2)) while its buffer exists, in whichever process
#
# Several sessions write to one fork, each with a buffer. The kernel releases a killed process's lock; the next buffer
# that is closed removes the directory. Windows cannot lock directories: there a file in the directory is locked, and
# closed before the directory is removed.


if sys.platform == "win32":
    _LOCK, _FLAGS = b"/lock", os.O_RDWR | os.O_CREAT
else:
    _LOCK, _FLAGS = b"", os.O_RDONLY | disk.O_DIRECTORY | disk.O_CLOEXEC
"""Path that is opened and locked: the directory itself, or a file below it."""


class SpillPlace:
    """A buffer's directory. Close it; then the contents are lost."""

    def __init__(self, fork: bytes) -> None:
        """``fork``: the fork's directory. Raise OSError on a disk error."""
        self._above = fork + b"/spill"
        self.path, self._held = self._make()

    def _make(self) -> tuple[bytes, int]:
        while True:
            path = self._above + b"/" + os.urandom(4).hex().encode()
            # another buffer that is being closed removes empty and unlocked directories
            with suppress(FileNotFoundError):
                os.makedirs(path, mode=0o700)
                held = disk.open_path(path + _LOCK, _FLAGS, 0o600)
                if try_lock(held, LOCK_EX) and _is_at(path, held):
                    return path, held
                os.close(held)
            os.stat(os.path.dirname(self._above))  # raises if the fork is gone

    def close(self) -> None:
        """Remove the directory, and those left by killed processes."""
        if _LOCK:
            os.close(self._held)
        with suppress(FileNotFoundError):  # the fork is being discarded
            remove_tree(self.path)
        if not _LOCK:
            os.close(self._held)
        remove_left(self._above)


def remove_left(above: bytes) -> bool:
    """Remove the directories of killed processes' buffers. Return whether there are others."""
    with suppress(FileNotFoundError):
        for name in os.listdir(above):
            _remove_left(above + b"/" + name)
    with suppress(OSError):  # another buffer has its directory there
        os.rmdir(above)
    return os.path.isdir(above)


def _remove_left(path: bytes) -> None:
    try:
        held = disk.open_path(path + _LOCK, _FLAGS, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return  # removed meanwhile, or made by an earlier version; it is removed with the fork
    is_left = False
    with Descriptor(held):
        is_left = try_lock(held, LOCK_EX)
        if is_left and not _LOCK:
            remove_tree(path)
    if is_left and _LOCK:
        with suppress(FileNotFoundError):  # another process may remove it at the same time
            remove_tree(path)


def _is_at(path: bytes, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path + _LOCK))
    except FileNotFoundError:
        return False


_SLOTS = b".mudroom/apply"


def _is_slot(path: bytes) -> bool:
    """Return whether the path is an apply's slot directory or below it, which commands do not see either: it holds
    earlier versions of files, including secrets, under numbers. Compared without case, because the file system may
    ignore case."""
    return path[:9].lower() == b".mudroom/" and is_below(path.lower(), _SLOTS)


class _Shown:
    """The fork's files without slots, as a source that survives reopening the fork.

    While another process or thread applies the fork, a file is neither in its layers nor in the project, and then in
    another place than at the opening: a missing file, and a directory's names, count only if the files have not moved.
    """

    def __init__(self, source: Source, have_moved: Callable[[], bool]) -> None:
        """``have_moved``: waits while files move; returns whether ``source`` was replaced because they have."""
        self.source, self.have_moved = source, have_moved

    def look(self, path: bytes) -> Entry | None:
        while not _is_slot(path):
            entry = self.source.look(path)
            if entry is not None or not self.have_moved():
                return entry
        return None

    def names(self, path: bytes) -> dict[bytes, Entry]:
        names = self.source.names(path)
        while self.have_moved():
            names = self.source.names(path)
        if path[:1] != b".":
            return names
        return {name: entry for name, entry in names.items() if not _is_slot(path + b"/" + name)}

    def open(self, path: bytes) -> int:
        while not _is_slot(path):
            try:
                return self.source.open(path)
            except OSError:
                if not self.have_moved():
                    raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class _Pins:
    """Files as they were when the fork was opened. Every writer replaces the files instead of writing to them.

    Each is pinned by a descriptor, so that no other file gets its inode; -1: missing. On Windows, some file systems
    cannot replace an open file; there only the identities are kept. An NTFS file number includes a use count
    (FILE_ID_INFORMATION), so it is not used again.

    Owner: the editor.
    """

    def __init__(self, paths: Sequence[bytes]) -> None:
        self._paths = paths
        self._descriptors = [] if sys.platform == "win32" else [_pin(path) for path in paths]
        self._identities = [_identity(path) for path in paths] if sys.platform == "win32" else []

    def is_outdated(self) -> bool:
        """Return whether any was replaced, made or deleted."""
        before = self._identities or map(_opened_identity, self._descriptors)
        return any(_identity(path) != identity for path, identity in zip(self._paths, before, strict=True))

    def close(self) -> None:
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)


def _pin(path: bytes) -> int:
    try:
        return disk.open_path(path, O_PATH | disk.O_CLOEXEC | disk.O_NOFOLLOW)
    except FileNotFoundError:
        return -1


def _opened_identity(pin: int) -> tuple[int, int] | None:
    if pin < 0:
        return None
    info = os.fstat(pin)
    return info.st_dev, info.st_ino


def _identity(path: bytes) -> tuple[int, int] | None:
    try:
        info = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


_DIRECTORY = ("directory",)
"""``version`` of any directory."""


class Editor:
    """File tools on a fork. Raise OSError if the fork cannot be opened. Close it; unflushed changes are lost then.

    ``refresh`` reopens the fork with the buffer's lock held, ``flush`` with the fork's.
    """

    def __init__(self, vault: Vault, fork: Fork, clock: Callable[[], int]) -> None:
        self._vault, self._fork, self._clock = vault, fork, clock
        self._files = (fork.path + b"/state", fork.record_path)
        self._pinned = _Pins(())
        self._versions: dict[bytes, tuple[object, ...] | None] = {}
        """For each path that the buffer changes: its earlier version."""
        self._without_original: set[bytes] = set()
        """Those of these paths that the fork had changed before. An apply forgets their originals."""
        self._spill = SpillPlace(fork.path)
        with ClosedOnError(self._spill):
            self._open()
        self._place = open_root(fork.path)  # an open descriptor keeps its inode from being reused
        info = os.fstat(self._place)
        self._identity = (info.st_ino, info.st_dev)
        self._shown = _Shown(self._opened.merged(), self._have_moved)
        self._has_missed = False
        """Whether the fork was reopened after another writer, and the buffer's changes not compared yet."""
        self.refused: dict[bytes, bytes] = {}
        """Changes withdrawn because another writer was first. Maps the path to the file with the content, or to an
        empty path."""
        self.buffer = Buffer(self._shown, keep=self._keep, spill=self._spill.path, clock=clock)

    def _open(self) -> None:
        pinned = _Pins(self._files)  # before the fork is read, so that a later version is noticed
        with ClosedOnError(pinned):
            opened = OpenFork(self._vault, self._fork)
            with ClosedOnError(opened):
                ground = opened.ground()
        self._pinned.close()
        self._pinned, self._opened, self._ground = pinned, opened, ground
        self._changed = {change.path for change in self._ground.before.changes}

    @property
    def is_there(self) -> bool:
        """Whether the fork still exists: it may have been discarded, and another fork made with its name."""
        try:
            info = os.stat(self._fork.path)
        except FileNotFoundError:
            return False
        return (info.st_ino, info.st_dev) == self._identity

    @property
    def is_outdated(self) -> bool:
        """Whether another session, instance or command has changed the fork since it was opened."""
        with self.buffer.lock:  # ``refresh`` in another thread closes the descriptors that are compared here
            return self._pinned.is_outdated()

    def refresh(self) -> None:
        """Reopen the fork after a command has run in it, or its layers have changed. The originals for unflushed
        changes stay known. If that fails, the fork stays open as it was."""
        with self.buffer.lock:  # a reading thread uses the descriptors closed here
            before, former = self._opened, self._ground.originals
            self._open()
            self._ground.originals.adopt(former, self._is_known)
            self._shown.source = self._opened.merged()
            before.close()

    def _have_moved(self) -> bool:
        self._fork.await_moving()
        if not self._pinned.is_outdated():
            return False
        self.refresh()
        self._has_missed = True
        return True

    def close(self, after: Source | None = None) -> None:
        """``after``: the tree in which a thread goes on that still reads the buffer; None: there is no such thread."""
        with self.buffer.lock:
            self.buffer.clear()
            self._shown.have_moved = lambda: False
            self._shown.source = after or self._shown.source
            self._opened.close()
        self._spill.close()
        os.close(self._place)
        self._pinned.close()

    def _keep(self, path: bytes) -> None:
        """Keep the original at a path that the fork changes first. Not needed on a snapshot, which never changes."""
        if path not in self._versions:
            self._versions[path] = version(self._shown.look(path))  # may open the fork anew
            if self._is_known(path):
                self._without_original.add(path)
        if self._is_known(path):
            return
        ground = self._ground
        entry = ground.base.look(path)
        if entry is None or entry.kind != "file":
            ground.originals.keep(path, entry)
            return
        with Descriptor(ground.base.open(path)) as opened:
            ground.originals.keep_file(path, entry, opened)

    def _is_known(self, path: bytes) -> bool:
        """Return whether a path's original is known, or not needed."""
        ground = self._ground
        return ground.frozen or path in self._changed or path in ground.landed or path in ground.masked

    def flush(self, command: CollectedCommand | None = None) -> list[bytes]:
        """Write the buffer into the fork and update its record. Hold the fork's lock; no command may be running in it.
        ``command``: an undo, for the record; its files are durable before the record, and that at the end. None: file
        tools.

        Return paths that cannot be staged: sockets, and files that are gone from the layers below. Changes at paths
        that another writer has changed are withdrawn first (``refused``).
        """
        with (
            self.buffer.lock
        ):  # until ``refresh``: another thread's write in between would be forgotten, its read stale
            return self._flush(command) if self.buffer.changed else []

    def _flush(self, command: CollectedCommand | None) -> list[bytes]:
        if self._vault.mask.has_secrets and mount_note(self._fork) is None:
            from mudroom.vault.forks.hidden import begin

            begin(self._vault, self._fork)
        is_outdated = self.is_outdated or self._has_missed
        if is_outdated:
            self.refresh()
        for path, before in self._versions.items():
            if before != _DIRECTORY:  # a new directory would hide what the user, or an apply, has put into theirs
                self.buffer.merge_directory(path)
        if is_outdated:
            self._withdraw()
        self._ground.originals.save()
        note = mount_note(self._fork)
        started = command_start(self._vault.path, 0) if note is None else note.since
        with self._writer() as writer:
            lost = self.buffer.flush(writer)
        is_undo = command is not None
        if is_undo:  # recovery takes what the record names for given back, and its slots go with the apply
            sync_all(self._fork.path)
        with OpenFork(self._vault, self._fork) as opened:
            mode: Mode = "copy" if self._fork.has_copy else "overlay"
            view = view_of(self._vault, self._fork, opened, mode)
            command = command or CollectedCommand((b"(file tools)",), 0, self._clock())
            gather(self._fork, opened, view, command, started, durable=is_undo)
        self.refresh()
        self._versions.clear()
        self._without_original.clear()
        self._has_missed = False
        return lost

    def _withdraw(self) -> None:
        """Withdraw the changes that would replace another writer's; keep their contents."""
        staged = self._opened.staged()
        for path in sorted(path for path in self._versions if self._is_taken(path, staged)):
            place = b""
            for at, content in self.buffer.withdraw(path):
                place = place or self._new_place()
                with os.fdopen(content, "rb") as source:
                    os.makedirs(os.path.dirname(place + b"/" + at), mode=0o700, exist_ok=True)
                    with open(place + b"/" + at, "xb") as target:
                        shutil.copyfileobj(source, target)
            self.refused[path] = place + b"/" + path if place else b""

    def _is_taken(self, path: bytes, staged: Source) -> bool:
        """Whether another writer has changed ``path`` in the fork since the buffer changed it. The user's edits in the
        project do not count: apply merges them. They do where another's apply has merged them: from then on nothing
        has the version that the buffer's change was made from, and the change would take them back."""
        entry = self._shown.look(path)
        if entry is not None and entry.kind == "directory" and self.buffer.look(path) is None:
            names = self._shown.names(path)  # a directory is deleted with the entries that were known
            return any(path + b"/" + name not in self._versions for name in names)
        made = self.buffer.look(path)
        if version(entry) == self._versions[path] or version(entry) == version(made) == _DIRECTORY:
            return False
        if entry is None:
            return self._ground.base.look(path) is not None
        return path in self._without_original or staged.look(path) is not None

    def _new_place(self) -> bytes:
        above = self._fork.path + b"/refused"
        os.makedirs(above, mode=0o700, exist_ok=True)
        place = above + b"/%d" % (len(os.listdir(above)) + 1)
        os.mkdir(place, 0o700)
        return place

    @contextmanager
    def _writer(self) -> Iterator[FlushTarget]:
        if self._fork.has_copy or mount_note(self._fork) is not None:
            root = open_root(work_place(self._fork))
        else:
            require_files(self._fork)
            upper = self._fork.upper
            if not os.path.isdir(upper):
                os.mkdir(upper, 0o700)
                top = self._opened.lower.look(b"")
                os.chmod(upper, top.mode if top is not None else 0o755)
            root = open_layer(upper)
        with Descriptor(root):
            if self._fork.has_copy or mount_note(self._fork) is not None:
                yield LayerWriter(root, NothingBelow())
                return
            aside = self._fork.path + b"/aside"
            if os.path.lexists(aside):
                remove_tree(aside)  # left by a crash
            os.mkdir(aside, 0o700)
            beside = open_root(aside)
            try:
                yield LayerWriter(root, self._opened.lower, beside)
            finally:
                os.close(beside)
                remove_tree(aside)
