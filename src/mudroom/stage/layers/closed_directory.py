"""Access to layer directories that a command has closed to their owner: ``mkdir d; echo x > d/x; chmod 0 d``.

Root can read and write in them anyway (CAP_DAC_OVERRIDE, capabilities(7)). Any other user first has to grant itself the
permission, and restores the mode afterwards. This module is never used on the user's own files: a directory that the
owner has closed there must not be read.

If the process is killed in between, a fork's directory stays open to its owner and to no other user. That is harmless.
Changes that were recorded before are applied with the mode that the command set, or, from a copy view, are refused
because the file differs from the reviewed one. Changes that are recorded afterwards show the mode that would be
applied. The project is not touched in any case.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ancestors
from mudroom.stage import disk
from mudroom.stage.beneath import O_PATH, directory, handle, look_beneath, open_beneath
from mudroom.typing import TypeVar

_ALL = stat.S_IRWXU
_Answer = TypeVar("_Answer")


class LoosenedDirectories:
    """Directories below ``root`` that stay enterable until ``restore``. Raises OSError as open(2) and chmod(2) do."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._modes: dict[bytes, int] = {}

    def enter(self, path: bytes) -> bool:
        """Make the directory at ``path`` enterable. Return False if the path does not exist. An entry that is not a
        directory is left unchanged."""
        try:
            with _handle(self._root, path) as (handle, mode):
                if stat.S_ISDIR(mode) and mode & _ALL != _ALL:
                    disk.set_mode_by(handle, stat.S_IMODE(mode) | _ALL)
                    self._modes.setdefault(path, stat.S_IMODE(mode))
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False

    def set_mode(self, path: bytes, mode: int) -> None:
        """Set the mode that a directory gets at ``restore``. Until then its owner may enter it."""
        set_mode_beneath(self._root, path, mode | _ALL)
        if mode & _ALL != _ALL:
            self._modes[path] = mode
        else:
            self._modes.pop(path, None)

    def forget(self, path: bytes) -> None:
        """Forget a path that was removed, and everything below it."""
        if self._modes:
            self._modes = {
                at: mode for at, mode in self._modes.items() if at != path and not at.startswith(path + b"/")
            }

    def restore(self) -> None:
        """Restore the modes, deepest first."""
        # A directory closed again could not be entered to reach those below it.
        for path in sorted(self._modes, reverse=True):
            set_mode_beneath(self._root, path, self._modes[path])
        self._modes.clear()


def set_mode_beneath(root: int, path: bytes, mode: int) -> None:
    """Set the mode of the file now at ``path``. No link is followed."""
    with _handle(root, path) as (handle, _mode):
        disk.set_mode_by(handle, mode)


@contextmanager
def _handle(root: int, path: bytes) -> Iterator[tuple[int | bytes, int]]:
    """Yield a name for the file now at ``path`` that stays valid if the path is renamed (proc(5), /proc/pid/fd), and
    its mode."""
    with Descriptor(open_beneath(root, path, O_PATH)) as descriptor:
        yield handle(descriptor), os.fstat(descriptor).st_mode


def through(root: int, path: bytes, do: Callable[[int, bytes], _Answer]) -> _Answer:
    """Return ``do(root, path)``. If that raises PermissionError, open the directories on the way and call it again.
    Their modes are restored when this returns, so an entry in the answer has its real mode."""
    try:
        return do(root, path)
    except PermissionError:
        if not disk.user():
            raise
    with _opened_up(root, path):
        return do(root, path)


@contextmanager
def entered(root: int, path: bytes) -> Iterator[int]:
    """Yield a descriptor for the directory at ``path``, for reading and changing its names; it is closed when the block
    ends."""
    with _opened_up(root, path) if disk.user() else nullcontext(), directory(root, path) as opened:
        yield opened


class LastEntered:
    """Like ``entered``, for many paths in walking order: the last directory stays open, and enterable, until ``leave``
    or the next ``enter``. One thread uses it at a time."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._path: bytes | None = None
        self._opened = -1
        self._stack = ExitStack()

    def __enter__(self) -> LastEntered:
        return self

    def __exit__(self, *_error: object) -> None:
        self.leave()

    def enter(self, path: bytes) -> int:
        """Return a descriptor for the directory at ``path``. Raise OSError as open(2) and chmod(2) do."""
        if path != self._path:
            self.leave()
            opened = self._stack.enter_context(entered(self._root, path))
            self._path, self._opened = path, opened
        return self._opened

    def leave(self) -> None:
        """Close the directory, and restore the modes on the way."""
        self._path = None
        self._stack.close()


@contextmanager
def _opened_up(root: int, path: bytes) -> Iterator[None]:
    loose = LoosenedDirectories(root)
    try:
        for at in (*ancestors(path), path) if path else ():
            if not loose.enter(at):
                break
        yield
    finally:
        loose.restore()


def open_to_owner(path: bytes) -> int | None:
    """Let the owner enter a view's root directory. Return the mode that it had, or None if it was open or does not
    exist. Raise OSError as open(2) does, also for a link.

    Unlike a directory in the view, the root stays open. Every reader, the next command and ``undo`` go through it: a
    command has no capabilities, and a project that is closed to its owner cannot be opened to undo the apply.
    """
    try:
        descriptor = disk.open_path(path, O_PATH | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with Descriptor(descriptor):
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & _ALL == _ALL:
            return None
        disk.set_mode_by(handle(descriptor), mode | _ALL)
        return mode


def is_same_root(below: Entry, staged: Entry) -> bool:
    """Return whether a view's root directory has the same mode as the one below, apart from the bits that
    ``open_to_owner`` adds if that one is closed to its owner, as in a read-only project."""
    return staged.mode in (below.mode, below.mode | _ALL)


def look_through(root: int, path: bytes) -> Entry | None:
    """Like ``look_beneath``, even if directories on the way are closed."""
    return through(root, path.rpartition(b"/")[0], lambda root, _above: look_beneath(root, path or b"."))
