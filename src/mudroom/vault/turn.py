"""Turns at a vault: many commands at once, or one landing alone.

Commands run side by side, each in its own fork, and hold ``agents`` shared. A landing (an apply, an undo, a recovery)
needs the vault alone. It takes ``wanted``, which makes every command pause its processes and release ``agents``, and
then holds ``agents`` exclusively until it is done. The commands then resume.

A user's own command is one of them. Agents pause for it, too, from its start until it ends or the policy's
``user_commands.pause`` has passed: it holds ``quiet`` for that long (``Quiet``). The invariants:

1. Files land only while ``agents`` is held exclusively: no process of a command runs then, an agent's or the user's.
2. Nothing is held while a person is asked. A landing holds the vault's lock, ``wanted`` and ``agents`` for its own
   time.
3. ``quiet`` is a courtesy. No result depends on it: an agent notices it within ``LOOK`` seconds, and one user command
   takes it over from another without waiting for it.
4. A command waits for ``quiet`` before ``wanted``, and holds neither while it waits for the other: a landing never
   waits for the end of ``quiet``.

All locks are flock(2): a lock dies with its process, so a killed process leaves no agent paused and no stale lock. A
lock belongs to the open file, which all threads of a process share. Therefore threads are counted here: the first takes
the lock for all, the last releases it.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable

from mudroom.core.system.closing import Descriptor
from mudroom.stage import disk
from mudroom.vault.lock import LOCK_EX, LOCK_SH, LOCK_UN, PATIENCE, Lock, flock, try_lock, wait_for

LOOK = 0.1
"""Seconds between two checks whether a command must pause."""


class Quiet:
    """The wish of a user's command that agents pause. ``look`` must be called every ``LOOK`` seconds. Close it.

    Of several user commands one holds the lock; each of the others takes it when it is free. Owner: the command.
    """

    def __init__(self, vault: bytes, holder: str, seconds: float) -> None:
        """``holder``: text for those who wait. ``seconds``: how long agents pause at most."""
        self._lock = Lock(vault + b"/quiet", holder)
        self._until = time.monotonic() + seconds
        self._is_held = False
        self.look()

    def look(self) -> None:
        """Take the lock if it is free; release it when the time has passed."""
        is_over = time.monotonic() >= self._until
        if self._is_held and is_over:
            self.close()
        elif not self._is_held and not is_over:
            self._is_held = self._lock.acquire_now()

    def close(self) -> None:
        self._until = 0.0
        if self._is_held:
            self._is_held = False
            self._lock.forget()
            self._lock.release()


class Turn:
    """A process's access to the turns. Close it when no thread uses it any more."""

    def __init__(self, vault: bytes) -> None:
        self._wanted_path, self._agents_path = vault + b"/wanted", vault + b"/agents"
        self._quiet_path = vault + b"/quiet"
        self._wanted = self._agents = self._quiet = -1
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
                self._quiet = disk.open_path(self._quiet_path, flags, 0o600)

    def close(self) -> None:
        for descriptor in (self._wanted, self._agents, self._quiet):
            if descriptor >= 0:
                os.close(descriptor)
        self._wanted = self._agents = self._quiet = -1

    # --- a command's side ---

    def begin(self, waiting: Callable[[bytes], None] = lambda _lock: None, *, is_users: bool = False) -> None:
        """Begin a command. Wait while the vault is held exclusively, and, unless it is the user's own, while a user's
        command wants quiet. Call ``waiting`` with the lock's path once if that takes longer than ``PATIENCE``."""
        self._open()
        if not is_users:
            with Descriptor(disk.open_path(self._quiet_path, os.O_RDWR | disk.O_CLOEXEC)) as descriptor:
                wait_for(descriptor, LOCK_SH, lambda: waiting(self._quiet_path), PATIENCE)
        # an open file of its own, because other threads release the lock on theirs
        with Descriptor(disk.open_path(self._wanted_path, os.O_RDWR | disk.O_CLOEXEC)) as descriptor:
            wait_for(descriptor, LOCK_SH, lambda: waiting(self._wanted_path), PATIENCE)
            with self._lock:
                if not self._commands:
                    flock(self._agents, LOCK_SH)  # free: the exclusive holder also holds ``wanted``
                self._commands += 1

    def end(self) -> None:
        with self._lock:
            self._commands -= 1
            if not self._commands:
                flock(self._agents, LOCK_UN)

    def stand_aside(self, pause: Callable[[], None], resume: Callable[[], None], *, is_users: bool = False) -> float:
        """If a process wants the vault alone, or quiet (``is_users``: that does not count), call ``pause``, wait until
        it is over, and call ``resume``.

        Return the seconds this took. Call it every ``LOOK`` seconds while a command runs.
        """
        with self._lock:
            if _is_free(self._wanted) and (is_users or _is_free(self._quiet)):
                return 0.0
        since = time.monotonic()
        pause()
        try:
            self.end()
            self.begin(is_users=is_users)
        finally:
            resume()
        return time.monotonic() - since

    # --- a landing's side ---

    def take(self, waiting: Callable[[], None]) -> None:
        """Take the vault exclusively. Hold the vault's lock. ``waiting`` is called if commands must pause.

        A signal handler that raises (Ctrl-C) ends the wait, and the commands resume.
        """
        self._open()
        flock(self._wanted, LOCK_EX)
        try:
            wait_for(self._agents, LOCK_EX, waiting)
        except BaseException:
            self.give()
            raise

    def give(self) -> None:
        """Release the vault. The commands resume."""
        flock(self._agents, LOCK_UN)
        flock(self._wanted, LOCK_UN)


def _is_free(descriptor: int) -> bool:
    """Return whether no process holds this lock exclusively."""
    is_free = try_lock(descriptor, LOCK_SH)
    if is_free:
        flock(descriptor, LOCK_UN)
    return is_free
