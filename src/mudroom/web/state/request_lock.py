"""Whose lock it is with a fork, among the requests of this process. What nobody holds or waits for is not remembered.

A fork's own lock keeps other processes off for the length of one call; a lock is for a request that makes several.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Act = Literal["decide", "start"]
"""What is done to a fork; one does not wait for the other."""


class _CountedLock:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = 0
        """How many hold it or wait for it."""


class RequestLocks:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[Act, str, str], _CountedLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextmanager
    def hold(self, act: Act, project: str, fork: str) -> Iterator[None]:
        """Waits until nobody else does the same to this fork."""
        key = (act, project, fork)
        with self._lock:
            lock = self._locks.setdefault(key, _CountedLock())
            lock.wanted += 1
        try:
            with lock.lock:
                yield
        finally:
            with self._lock:
                lock.wanted -= 1
                if not lock.wanted:
                    del self._locks[key]
