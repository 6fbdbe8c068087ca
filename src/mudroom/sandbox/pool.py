"""Containers that are warm: the lifetime of a container is not that of what is done in it.

A command acquires one and gives it back; what it has written is in its fork, not in the container, and what it has left
behind there ended with it. One that is not healthy, or that nobody has asked for what it can do, is closed.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterable

from mudroom.core.container import Container, Mount
from mudroom.core.path import is_below
from mudroom.sandbox.box import Box

MOST_IDLE = 4
"""Containers that are kept though nobody uses them; the one that was used longest ago goes first."""


def covers(have: Iterable[Mount], wanted: Iterable[Mount]) -> bool:
    """Whether all that is wanted is to be seen, at the same place and with the same right to write."""
    mounts = sorted(have, key=lambda mount: len(mount.target), reverse=True)
    for mount in wanted:
        found = next((one for one in mounts if is_below(mount.target, one.target)), None)
        if found is None or found.source + mount.target[len(found.target) :] != mount.source:
            return False
        if found.writable != mount.writable:
            return False
    return True


def serves(box: Container, wanted: Container) -> bool:
    """Whether a container that was made as ``box`` can be used where ``wanted`` would be made."""
    alike = all(getattr(box, name) == getattr(wanted, name) for name in _ALIKE)
    return alike and covers(box.mounts, wanted.mounts)


_ALIKE = ("image", "user", "private", "nested", "memory", "processes", "cpus")


class Pool:
    """Safe to use from several threads."""

    def __init__(self, make: Callable[[Container], Box], most: int = MOST_IDLE) -> None:
        self._make, self._most = make, most
        self._lock = _thread.allocate_lock()
        self._idle: list[Box] = []
        self._used: set[Box] = set()

    def acquire(self, wanted: Container) -> Box:
        """One that serves; a new one if none does. Raises MudroomError if there can be none."""
        while True:
            with self._lock:
                box = next((one for one in reversed(self._idle) if serves(one.container, wanted)), None)
                if box is not None:
                    self._idle.remove(box)
                    self._used.add(box)
            if box is None:
                box = self._make(wanted)
                with self._lock:
                    self._used.add(box)
                return box
            if box.is_healthy():
                return box
            self.discard(box)

    def release(self, box: Box) -> None:
        with self._lock:
            self._used.discard(box)
            self._idle.append(box)
            over = self._idle[: max(0, len(self._idle) - self._most)]
            del self._idle[: len(over)]
        for one in over:
            one.close()

    def discard(self, box: Box) -> None:
        """Of one that is not fit to be used again."""
        with self._lock:
            self._used.discard(box)
        box.close()

    def close(self) -> None:
        with self._lock:
            boxes = [*self._idle, *self._used]
            self._idle, self._used = [], set()
        for box in boxes:
            box.close()
