"""Few commands at a time are prepared and collected, however many run: the rest wait for these.

Threads of one interpreter take turns at it with each system call (the GIL), and a preparation is a hundred of them:
with a hundred commands at once the switches cost as much as the work. A slot is a courtesy and no lock: a command waits
as long as others get on, and goes ahead if none has for ``PATIENCE``. So nothing waits for a copy that takes minutes,
and no order of locks is to be kept.
"""

from __future__ import annotations

import _thread

SLOTS = 2
PATIENCE = 0.25
"""Seconds."""


class Crowd:
    """The commands of a session. ``_lock`` guards the other attributes. ``threading`` has a semaphore; it is not loaded
    for the only command of a process."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._taken = self._given = 0
        self._waiting: list[_thread.LockType] = []
        """Held locks of the commands that wait, the first at the front; released when a slot is handed over."""

    def slot(self) -> Slot:
        return Slot(self)

    def enter(self) -> bool:
        """Wait for a slot. Return False if none is free and none is given back for a while."""
        with self._lock:
            if self._taken < SLOTS:
                self._taken += 1
                return True
            turn = _thread.allocate_lock()
            turn.acquire()
            self._waiting.append(turn)
            before = self._given
        while not turn.acquire(timeout=PATIENCE):
            with self._lock:
                if turn not in self._waiting:
                    return True  # handed over in this moment
                if self._given == before:
                    self._waiting.remove(turn)
                    return False
                before = self._given
        return True

    def leave(self) -> None:
        with self._lock:
            self._given += 1
            if self._waiting:
                self._waiting.pop(0).release()
            else:
                self._taken -= 1


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
