"""The directory of a fork for contents that do not fit into the memory of one write buffer.

    forks/<name>/spill/<random>/    held by a lock (flock(2)) as long as its buffer lives, in whichever process

Several sessions write to one fork, each with a buffer. The kernel releases the lock of a killed process; what that has
left is removed by the next buffer that is closed. Windows locks no directory: there, a file in it is locked, and is
closed before the directory is removed.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from mudroom.stage import disk
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.lock import LOCK_EX, LOCK_NB, flock

if sys.platform == "win32":
    _LOCK, _FLAGS = b"/lock", os.O_RDWR | os.O_CREAT
else:
    _LOCK, _FLAGS = b"", os.O_RDONLY | disk.O_DIRECTORY | disk.O_CLOEXEC
"""The path that is opened to be locked: the directory itself, or a file below it."""


class SpillPlace:
    """Close it; the contents are lost then."""

    def __init__(self, fork: bytes) -> None:
        """``fork``: the fork's directory. Raise OSError as the disk does."""
        self._above = fork + b"/spill"
        self.path, self._held = self._make()

    def _make(self) -> tuple[bytes, int]:
        while True:
            path = self._above + b"/" + os.urandom(4).hex().encode()
            with suppress(FileNotFoundError):  # a buffer that is being closed removes empty and unlocked directories
                os.makedirs(path, mode=0o700)
                held = disk.open_path(path + _LOCK, _FLAGS, 0o600)
                if _is_locked_now(held) and _is_at(path, held):
                    return path, held
                os.close(held)
            os.stat(os.path.dirname(self._above))  # the fork may be gone, which is an error

    def close(self) -> None:
        """Remove the directory, and those of killed processes."""
        if _LOCK:
            os.close(self._held)
        with suppress(FileNotFoundError):  # somebody discards the fork
            remove_tree(self.path)
            for name in os.listdir(self._above):
                _remove_left(self._above + b"/" + name)
        if not _LOCK:
            os.close(self._held)
        with suppress(OSError):  # another buffer has its directory there
            os.rmdir(self._above)


def _remove_left(path: bytes) -> None:
    try:
        held = disk.open_path(path + _LOCK, _FLAGS, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return  # removed meanwhile, or made by an earlier version; it goes with the fork
    is_left = False
    try:
        is_left = _is_locked_now(held)
        if is_left and not _LOCK:
            remove_tree(path)
    finally:
        os.close(held)
    if is_left and _LOCK:
        with suppress(FileNotFoundError):  # by another process, at the same time
            remove_tree(path)


def _is_locked_now(descriptor: int) -> bool:
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: bytes, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path + _LOCK))
    except FileNotFoundError:
        return False
