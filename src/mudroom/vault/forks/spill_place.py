"""A fork's directory for contents that do not fit into one write buffer's memory.

    forks/<name>/spill/<random>/    locked (flock(2)) while its buffer exists, in whichever process

Several sessions write to one fork, each with a buffer. The kernel releases a killed process's lock; the next buffer
that is closed removes the directory. Windows cannot lock directories: there a file in the directory is locked, and
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
                if _is_locked_now(held) and _is_at(path, held):
                    return path, held
                os.close(held)
            os.stat(os.path.dirname(self._above))  # raises if the fork is gone

    def close(self) -> None:
        """Remove the directory, and those left by killed processes."""
        if _LOCK:
            os.close(self._held)
        with suppress(FileNotFoundError):  # the fork is being discarded
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
        return  # removed meanwhile, or made by an earlier version; it is removed with the fork
    is_left = False
    try:
        is_left = _is_locked_now(held)
        if is_left and not _LOCK:
            remove_tree(path)
    finally:
        os.close(held)
    if is_left and _LOCK:
        with suppress(FileNotFoundError):  # another process may remove it at the same time
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
