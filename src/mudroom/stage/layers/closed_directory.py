"""Directories of ours that a command has closed to their owner: ``mkdir d; echo x > d/x; chmod 0 d``.

Root reads and writes there all the same (CAP_DAC_OVERRIDE, capabilities(7)); everybody else has to give himself the
permission first, and gives it back. Nothing here is for the user's own files: what the owner has closed there is not
to be read.

Killed in between, a directory of a fork stays open to its owner, and to nobody else. That harms nothing: what was
recorded of a command before lands with the mode that it gave, or, from a copy, is refused as not what was looked at;
what is recorded afterwards shows the mode that would land. The project is not touched by any of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ancestors
from mudroom.stage.beneath import O_PATH, directory, handle, look_beneath, open_beneath

_ALL = stat.S_IRWXU
_Answer = TypeVar("_Answer")


class LoosenedDirectories:
    """Directories below ``root`` that are enterable until ``restore``. Raises OSError as open(2) and chmod(2) do."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._modes: dict[bytes, int] = {}

    def enter(self, path: bytes) -> bool:
        """False if there is nothing at the path. What is no directory is left as it is."""
        try:
            with _handle(self._root, path) as (handle, mode):
                if stat.S_ISDIR(mode) and mode & _ALL != _ALL:
                    os.chmod(handle, stat.S_IMODE(mode) | _ALL)
                    self._modes.setdefault(path, stat.S_IMODE(mode))
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False

    def set_mode(self, path: bytes, mode: int) -> None:
        """What a directory is to have in the end. Until then its owner may enter it."""
        with _handle(self._root, path) as (handle, _mode):
            os.chmod(handle, mode | _ALL)
        if mode & _ALL != _ALL:
            self._modes[path] = mode
        else:
            self._modes.pop(path, None)

    def forget(self, path: bytes) -> None:
        """What was at a path is gone, with all that was in it."""
        if self._modes:
            self._modes = {
                at: mode for at, mode in self._modes.items() if at != path and not at.startswith(path + b"/")
            }

    def restore(self) -> None:
        """Deepest first: a closed directory is not entered again."""
        for path in sorted(self._modes, reverse=True):
            with _handle(self._root, path) as (handle, _mode):
                os.chmod(handle, self._modes[path])
        self._modes.clear()


@contextmanager
def _handle(root: int, path: bytes) -> Iterator[tuple[int | bytes, int]]:
    """A path of what is there now, whatever becomes of the name (proc(5), /proc/pid/fd), and its mode."""
    descriptor = open_beneath(root, path, O_PATH)
    try:
        yield handle(descriptor), os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)


def through(root: int, path: bytes, do: Callable[[int, bytes], _Answer]) -> _Answer:
    """``do(root, path)``, again with the directories on the way open if they were closed to us. Their modes are back
    when this returns, so the answer tells the real ones."""
    try:
        return do(root, path)
    except PermissionError:
        if not os.geteuid():
            raise
    with _opened_up(root, path):
        return do(root, path)


@contextmanager
def entered(root: int, path: bytes) -> Iterator[int]:
    """The directory at ``path``, opened for reading and writing names in it for as long as the block runs."""
    with _opened_up(root, path) if os.geteuid() else nullcontext(), directory(root, path) as opened:
        yield opened


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


def look_through(root: int, path: bytes) -> Entry | None:
    """``look_beneath``, whatever the directories on the way are closed to."""
    return through(root, path.rpartition(b"/")[0], lambda root, _above: look_beneath(root, path or b"."))
