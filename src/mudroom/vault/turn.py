"""Turns at a vault: many agents at once, or one user command alone.

Agents run side by side, each in its own fork, and hold ``agents`` shared. A user command, an apply or an undo needs the
vault alone. It takes ``wanted``, which makes every agent pause its processes and release ``agents``, and then holds
``agents`` exclusively until it is done. The agents then resume.

All locks are flock(2): a lock dies with its process, so a killed process leaves no agent paused and no stale lock. A
lock belongs to the open file, which all threads of a process share. Therefore threads are counted here: the first takes
the lock for all, the last releases it.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable

from mudroom.stage import disk
from mudroom.vault.lock import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, PATIENCE, flock, wait_for

LOOK = 0.1
"""Seconds between two checks whether an agent must pause."""


class Turn:
    """A process's access to the turns. Close it when no thread uses it any more."""

    def __init__(self, vault: bytes) -> None:
        self._wanted_path, self._agents_path = vault + b"/wanted", vault + b"/agents"
        self._wanted = self._agents = -1
        self._lock = _thread.allocate_lock()
        """Guards the command count and opening the files.

        Never held while waiting: the exclusive holder waits until the last agent has released its lock.
        """
        self._commands = 0

    def _open(self) -> None:
        with self._lock:
            if self._wanted < 0:
                flags = os.O_RDWR | os.O_CREAT | disk.O_CLOEXEC
                self._wanted = disk.open_path(self._wanted_path, flags, 0o600)
                self._agents = disk.open_path(self._agents_path, flags, 0o600)

    def close(self) -> None:
        for descriptor in (self._wanted, self._agents):
            if descriptor >= 0:
                os.close(descriptor)
        self._wanted = self._agents = -1

    # --- an agent's side ---

    def begin(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Begin an agent's command. Wait while the vault is held exclusively; call ``waiting`` once if that takes
        longer than ``PATIENCE``."""
        self._open()
        # an open file of its own, because other threads release the lock on theirs
        descriptor = disk.open_path(self._wanted_path, os.O_RDWR | disk.O_CLOEXEC)
        try:
            wait_for(descriptor, LOCK_SH, waiting, PATIENCE)
            with self._lock:
                if not self._commands:
                    flock(self._agents, LOCK_SH)  # free: the exclusive holder also holds ``wanted``
                self._commands += 1
        finally:
            os.close(descriptor)

    def end(self) -> None:
        with self._lock:
            self._commands -= 1
            if not self._commands:
                flock(self._agents, LOCK_UN)

    def stand_aside(self, pause: Callable[[], None], resume: Callable[[], None]) -> float:
        """If a process wants the vault alone, call ``pause``, wait until the vault is free, and call ``resume``.

        Return the seconds this took. Call it every ``LOOK`` seconds while an agent's command runs.
        """
        with self._lock:
            try:
                flock(self._wanted, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                pass
            else:
                flock(self._wanted, LOCK_UN)
                return 0.0
        since = time.monotonic()
        pause()
        try:
            self.end()
            self.begin()
        finally:
            resume()
        return time.monotonic() - since

    # --- the user's side ---

    def take(self, waiting: Callable[[], None]) -> None:
        """Take the vault exclusively. Hold the vault's lock. ``waiting`` is called if agents must pause.

        A signal handler that raises (Ctrl-C) ends the wait, and the agents resume.
        """
        self._open()
        flock(self._wanted, LOCK_EX)
        try:
            try:
                flock(self._agents, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                waiting()
                flock(self._agents, LOCK_EX)
        except BaseException:
            self.give()
            raise

    def give(self) -> None:
        """Release the vault. The agents resume."""
        flock(self._agents, LOCK_UN)
        flock(self._wanted, LOCK_UN)
