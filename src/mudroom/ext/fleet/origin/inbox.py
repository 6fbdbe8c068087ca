"""Events that links have read and the dispatcher has not handled yet, bounded for each link.

A link whose events fill its share does not read on until some were taken (``has_room``). A worker that sends faster
than the origin handles fills its own pipe, not the origin's memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from mudroom.ext.fleet.wire.frame import Frame
from mudroom.typing import Any, NamedTuple

SHARE = 4 << 20
"""Bytes in one link's events that are held at most, and one frame more."""
_EVENT = 256
"""Bytes that an event counts beside its body."""


class LinkEnd(NamedTuple):
    """A link's last event."""

    reason: str
    hint: str
    said_hello: bool
    was_killed: bool = False
    """Whether its program was ended by a signal: that need not happen again."""


class FeedFailed(NamedTuple):
    """The parts of a base could not be made. The link goes on."""

    error: Exception


LinkEvent = Frame | LinkEnd | FeedFailed


class LinkInbox:
    """``_changed`` guards the events and the sizes. Its lock is held for no longer than a list operation."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: deque[tuple[Any, LinkEvent, int]] = deque()
        self._sizes: dict[Any, int] = {}
        self._is_woken = False

    def has_room(self, sender: Any) -> bool:
        with self._changed:
            return self._sizes.get(sender, 0) < SHARE

    def put(self, sender: Any, event: LinkEvent, size: int = 0) -> None:
        """Add an event. It is never refused: callers look at ``has_room`` before they read what makes one."""
        with self._changed:
            self._events.append((sender, event, size + _EVENT))
            self._sizes[sender] = self._sizes.get(sender, 0) + size + _EVENT
            self._changed.notify()

    def wake(self) -> None:
        """End the wait of ``take``, or the next one."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def take(self, seconds: float) -> tuple[list[tuple[Any, LinkEvent]], set[Any]]:
        """Wait for events, at most so long, and return all there are, with the senders that had no room before."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._events and not self._is_woken:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._is_woken = False
            taken = [(sender, event) for sender, event, _size in self._events]
            full = {sender for sender, size in self._sizes.items() if size >= SHARE}
            self._events.clear()
            self._sizes.clear()
            return taken, full
