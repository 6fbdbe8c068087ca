"""Whose turn it is: many agents at once, or one user command alone.

Agents run side by side, each in its own fork, and hold ``agents`` shared. A user command, an apply or an undo wants
the vault alone: it holds ``wanted``, which makes every agent stop its processes and let go of ``agents``, and then
holds ``agents`` alone until it is done. The agents go on where they were stopped.

All by flock(2): a lock dies with its process, so nobody stays stopped because somebody was killed, and no lock has to
be recognised as stale. A lock is of the open file, which all threads of a process share: they are counted here, and
the first takes it for all, the last lets go of it.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import time
from collections.abc import Callable

LOOK = 0.1
"""Seconds: so often an agent looks whether it is to stop."""


class Turn:
    def __init__(self, vault: bytes) -> None:
        self._wanted_path, self._agents_path = vault + b"/wanted", vault + b"/agents"
        self._wanted = self._agents = -1
        self._lock = _thread.allocate_lock()
        """Never held while somebody is waited for: whoever has the vault alone waits until the last one has let go."""
        self._commands = 0

    def _open(self) -> None:
        with self._lock:
            if self._wanted < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._wanted = os.open(self._wanted_path, flags, 0o600)
                self._agents = os.open(self._agents_path, flags, 0o600)

    def close(self) -> None:
        for descriptor in (self._wanted, self._agents):
            if descriptor >= 0:
                os.close(descriptor)
        self._wanted = self._agents = -1

    # --- an agent's side ---

    def begin(self) -> None:
        """Before a command of an agent: waits while somebody has the vault alone."""
        self._open()
        mine = os.open(self._wanted_path, os.O_RDWR | os.O_CLOEXEC)  # an open file of its own: others let go of theirs
        try:
            fcntl.flock(mine, fcntl.LOCK_SH)
            with self._lock:
                if not self._commands:
                    fcntl.flock(self._agents, fcntl.LOCK_SH)  # who has it alone has ``wanted``, too
                self._commands += 1
        finally:
            os.close(mine)

    def end(self) -> None:
        with self._lock:
            self._commands -= 1
            if not self._commands:
                fcntl.flock(self._agents, fcntl.LOCK_UN)

    def stand_aside(self, pause: Callable[[], None], resume: Callable[[], None]) -> float:
        """If somebody wants the vault alone: ``pause``, wait until it is free again, ``resume``. Returns the seconds
        that took. Call it every ``LOOK`` seconds while a command of an agent runs."""
        with self._lock:
            try:
                fcntl.flock(self._wanted, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                fcntl.flock(self._wanted, fcntl.LOCK_UN)
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
        """Have the vault alone. ``waiting`` is called if agents have to be stopped for it. Hold the vault's lock.

        A signal handler that raises (Ctrl-C) ends the waiting, and the agents go on.
        """
        self._open()
        fcntl.flock(self._wanted, fcntl.LOCK_EX)
        try:
            try:
                fcntl.flock(self._agents, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(self._agents, fcntl.LOCK_EX)
        except BaseException:
            self.give()
            raise

    def give(self) -> None:
        """Let the agents go on."""
        fcntl.flock(self._agents, fcntl.LOCK_UN)
        fcntl.flock(self._wanted, fcntl.LOCK_UN)
