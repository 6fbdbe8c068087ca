"""Locks among the requests of this process, by action, project and fork. A lock that is not held or awaited is dropped.

A fork's own lock excludes other processes for one call of the session. These locks are for requests that make several
calls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Act = Literal["decide", "start"]
"""The action on a fork; different actions do not exclude each other."""


class _CountedLock:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        """Number of holders and waiters."""


class RequestLocks:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[Act, str, str], _CountedLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextmanager
    def hold(self, act: Act, project: str, fork: str) -> Iterator[None]:
        """Hold the lock of an action on a fork; wait for other requests that hold it."""
        key = (act, project, fork)
        with self._lock:
            entry = self._locks.setdefault(key, _CountedLock())
            entry.users += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._lock:
                entry.users -= 1
                if not entry.users:
                    del self._locks[key]
