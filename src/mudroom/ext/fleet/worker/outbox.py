"""Frames on their way to the origin, written by one thread.

Rules of this file:
1. A producer of urgent frames (answers to the origin, questions, connection bytes) waits while ``MOST`` bytes of them
   are unsent. Output and archives are *sources*: they stay on disk until it is their turn, so a slow origin costs no
   memory and stops no command.
2. Sources take turns, one frame each, so one errand's output does not hold up another's. Urgent frames and sources take
   turns, too.
3. A source that becomes ready goes behind the urgent frames that are there already: the origin reads that an errand was
   accepted before it reads its output.
4. A link that is over takes frames and drops them: outcomes are on disk, and the next link sends them.
"""

from __future__ import annotations

import threading
from collections import deque

from mudroom.core.system.write_all import write_all
from mudroom.ext.fleet.wire.frame import Frame, encode
from mudroom.typing import Protocol

MOST = 4 << 20
"""Bytes in urgent frames that wait."""


class PendingFrames(Protocol):
    """Frames that are made when they can be sent."""

    def next_frame(self) -> Frame | None:
        """Return the next frame; None if there is none now (``LinkOutbox.wake`` tells of one)."""


class LinkOutbox:
    """``_changed`` is the lock of all attributes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._urgent: deque[bytes] = deque()
        self._unsent = 0
        """Bytes in urgent frames, the one that is being written included."""
        self._put = self._taken = 0
        """Counts: urgent frames that came, and those that were taken to be written."""
        self._was_urgent = False
        self._writing = 0
        """Bytes in the urgent frame that is being written."""
        self._busy = False
        """Whether a frame is being made or written on a link that is not over."""
        self._ready: deque[tuple[PendingFrames, int]] = deque()
        """Each with the count of urgent frames that are taken before it."""
        self._is_over = False
        self._writer = threading.Thread(target=self._write, name="outbox", daemon=True)

    def start(self) -> None:
        self._writer.start()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def put(self, frame: Frame) -> None:
        """Send a frame before all sources. Wait while the origin does not read."""
        data = encode(frame)
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._unsent == 0 or self._unsent + len(data) <= MOST)
            if not self._is_over:
                self._urgent.append(data)
                self._put += 1
                self._unsent += len(data)
                self._changed.notify_all()

    def wake(self, source: PendingFrames) -> None:
        """Note that a source has a frame. It is asked until it has none."""
        with self._changed:
            self._make_ready(source, self._put)

    def flush(self, timeout: float) -> bool:
        """Wait until every frame is written, or the link is over. Return False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._urgent or self._ready or self._busy), timeout)

    def close(self) -> None:
        with self._changed:
            self._is_over, self._busy = True, False
            self._urgent.clear()
            self._ready.clear()
            self._changed.notify_all()

    def _write(self) -> None:
        try:
            while (data := self._next()) is not None:
                write_all(self._descriptor, data)
        except OSError:  # the origin is gone; the reader sees the end of its side, too
            self.close()

    def _next(self) -> bytes | None:
        """Return the next frame to write, after there is one; None: the link is over."""
        while True:
            with self._changed:
                self._unsent -= self._writing
                self._writing, self._busy = 0, False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_over or self._urgent or self._ready)
                if self._is_over:
                    return None
                self._busy = True
                is_source_turn = bool(self._ready) and self._was_urgent and self._ready[0][1] <= self._taken
                self._was_urgent = bool(self._urgent) and not is_source_turn
                if self._was_urgent:
                    data = self._urgent.popleft()
                    self._taken += 1
                    self._writing = len(data)
                    return data
                source, _behind = self._ready.popleft()
            frame = source.next_frame()
            if frame is not None:
                with self._changed:
                    self._make_ready(source, 0)
                return encode(frame)

    def _make_ready(self, source: PendingFrames, behind: int) -> None:
        if not self._is_over and all(source is not ready for ready, _behind in self._ready):
            self._ready.append((source, behind))
            self._changed.notify_all()
