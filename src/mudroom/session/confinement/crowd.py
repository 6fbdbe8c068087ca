"""Limit how many commands are prepared or collected at a time; the others wait for a slot.

Threads in one interpreter hand over the GIL at each system call, and preparing a command takes a hundred calls: with a
hundred commands at once, the switches cost as much as the work. A slot is a courtesy, not a lock: a command waits while
others make progress, and goes ahead if none has for ``PATIENCE``. So no command waits for a copy that takes minutes,
and slots need no lock order.
"""

from __future__ import annotations

import _thread

SLOTS = 2
PATIENCE = 0.25
"""Seconds."""


class Crowd:
    """A session's slots. ``_lock`` guards the other attributes. Not a ``threading`` semaphore: that module is not
    loaded for a process's only command."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._taken = self._given = 0
        self._waiting: list[_thread.LockType] = []
        """Held locks of waiting commands, the first at the front. A lock is released when a slot is handed over."""

    def slot(self) -> Slot:
        return Slot(self)

    def enter(self) -> bool:
        """Wait for a slot. Return False if none is free and none is given back for ``PATIENCE``."""
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
                    return True  # handed over since the timeout
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
    """One command's slot. Used by one thread."""

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
