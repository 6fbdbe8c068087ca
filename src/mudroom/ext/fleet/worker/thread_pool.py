"""Threads that run errands: so many at once, the rest in order of arrival."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Work = Callable[[], None]


class ThreadPool:
    """``_changed`` is the lock of all attributes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._waiting: deque[Work] = deque()
        self._threads = 0
        self._idle = 0
        self._is_closed = False

    def submit(self, work: Work) -> None:
        with self._changed:
            self._waiting.append(work)
            if self._idle < len(self._waiting) and self._threads < self._size:
                self._threads += 1
                threading.Thread(target=self._serve, name="errand", daemon=True).start()
            self._changed.notify_all()

    def cancel(self, work: Work) -> bool:
        """Return whether the work was still waiting; it is not done any more."""
        with self._changed:
            if work not in self._waiting:
                return False
            self._waiting.remove(work)
            self._changed.notify_all()
            return True

    @property
    def load(self) -> int:
        """Errands that run or wait."""
        with self._changed:
            return self._threads - self._idle + len(self._waiting)

    def join(self) -> None:
        """Wait until nothing runs or waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._threads == self._idle and not self._waiting)
            self._is_closed = True
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                self._idle -= 1
                if not self._waiting:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                work = self._waiting.popleft()
            work()
