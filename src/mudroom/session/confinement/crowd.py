"""Few commands at a time are prepared and collected, however many run: the rest wait for these.

Threads of one interpreter take turns at it with each system call (the GIL), and a preparation is a hundred of them:
with a hundred commands at once the switches cost as much as the work. A slot is a courtesy and no lock: a command waits
as long as others get on, and goes ahead if none has for ``PATIENCE``. So nothing waits for a copy that takes minutes,
and no order of locks is to be kept.
"""

from __future__ import annotations

import threading

SLOTS = 2
PATIENCE = 0.25
"""Seconds."""


class Crowd:
    """The commands of a session. ``_free`` guards itself; the count is only compared with its last value."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(SLOTS)
        self._given = 0

    def slot(self) -> Slot:
        return Slot(self)

    def enter(self) -> bool:
        """Wait for a slot. Return False if none is free and none is given back for a while."""
        while True:
            before = self._given
            if self._free.acquire(timeout=PATIENCE):
                return True
            if self._given == before:
                return False

    def leave(self) -> None:
        self._given += 1
        self._free.release()


class Slot:
    """The slot of one command. Used by one thread."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._is_held = False

    def take(self) -> None:
        if not self._is_held:
            self._is_held = self._crowd.enter()

    def give(self) -> None:
        if self._is_held:
            self._is_held = False
            self._crowd.leave()
