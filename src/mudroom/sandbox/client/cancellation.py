"""The end of a command on its caller's request: a client that has cancelled it, or has gone.

Rules:
1. A command that has not started when its cancellation is set never starts.
2. A running command gets SIGTERM, and ``GRACE`` seconds later SIGKILL. Its changes are collected as usual.
3. A wait for an approval ends at once (``fileno``).
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable

from mudroom.errors import MudroomError
from mudroom.sandbox.client.capture import GRACE, SIGKILL, SIGTERM

Signal = Callable[[int], None]


class Cancelled(MudroomError):
    """The caller cancelled the command before it started."""

    def __init__(self) -> None:
        super().__init__("the command was cancelled before it was started")


class Cancellation:
    """Thread-safe: ``_lock`` guards all attributes. Must be closed, unless ``fileno`` was never called."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._is_set = self._has_started = False
        self._targets: list[Signal] = []
        self._pipe: tuple[int, int] | None = None

    @property
    def is_set(self) -> bool:
        return self._is_set

    @property
    def has_started(self) -> bool:
        return self._has_started

    def require_unset(self) -> None:
        if self._is_set:
            raise Cancelled

    def cancel(self) -> None:
        """End the command. Does nothing the second time."""
        with self._lock:
            if self._is_set:
                return
            self._is_set = True
            targets = list(self._targets)
            if self._pipe is not None:
                os.write(self._pipe[1], b"\0")
        for signal in targets:
            _end(self, signal)

    def kill(self) -> None:
        """End all the command's processes at once. If it has not started, it never does."""
        self.cancel()
        with self._lock:
            targets = list(self._targets)
        for signal in targets:
            signal(SIGKILL)

    def attach(self, signal: Signal) -> None:
        """Call ``signal`` for each signal to the command, from now until ``detach``."""
        with self._lock:
            self._targets.append(signal)
            self._has_started = True
            late = self._is_set
        if late:
            _end(self, signal)

    def detach(self, signal: Signal) -> None:
        with self._lock:
            if signal in self._targets:
                self._targets.remove(signal)

    def is_attached(self, signal: Signal) -> bool:
        with self._lock:
            return signal in self._targets

    def fileno(self) -> int:
        """Return a descriptor that is readable once the command is cancelled."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                if self._is_set:
                    os.write(self._pipe[1], b"\0")
            return self._pipe[0]

    def close(self) -> None:
        with self._lock:
            pipe, self._pipe = self._pipe, None
        for descriptor in pipe or ():
            os.close(descriptor)


def _end(cancellation: Cancellation, signal: Signal) -> None:
    signal(SIGTERM)
    import threading

    def insist() -> None:
        if cancellation.is_attached(signal):
            signal(SIGKILL)

    timer = threading.Timer(GRACE, insist)
    timer.daemon = True
    timer.start()
