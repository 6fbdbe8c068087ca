"""A link's lease: how long its commands may go on without a frame from the origin.

Only this machine's monotonic clock is read, so clocks that differ do not matter. The last contact on every link from an
origin and node is in one file, by that clock: after a reconnect the new link's frames keep the old worker process's
commands alive.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable

LONGEST = 7 * 86400.0
"""Seconds."""
_SHORTEST = 0.05
POLL = 0.5
"""Seconds between two polls once the link is gone: another link from the origin may extend the lease, or end an
errand."""
_SAVE_AFTER = 0.25
"""Seconds between two writes to the heartbeat file."""
_TIME = struct.Struct(">d")


def bounded(lease: float) -> float:
    """Return the origin's lease within bounds; NaN is the shortest."""
    return min(max(lease, _SHORTEST), LONGEST) if lease == lease else _SHORTEST


class Lease:
    """``_changed`` is the lock of all attributes."""

    def __init__(self, seconds: float, heartbeat: bytes, has_unread: Callable[[], bool]) -> None:
        """``heartbeat``: the file with the last contact. ``has_unread``: whether bytes from the origin wait to be read:
        this process may have been stopped while the origin spoke."""
        self._seconds, self._has_unread = bounded(seconds), has_unread
        self._file = os.open(heartbeat, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._changed = threading.Condition()
        self._renewed = self._saved = 0.0
        self._is_detached = self._is_closed = False
        self.renew()

    def renew(self) -> None:
        """Note a frame from the origin."""
        now = time.monotonic()
        with self._changed:
            self._renewed = now
            is_due = now - self._saved >= min(_SAVE_AFTER, self._seconds / 4)
            if is_due:
                self._saved = now
        if is_due:
            os.pwrite(self._file, _TIME.pack(now), 0)

    def detach(self) -> None:
        """The link is gone. Only another link's frames count from now on."""
        with self._changed:
            self._is_detached = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def watch(self, expired: Callable[[], None], poll: Callable[[], None]) -> None:
        """Call ``expired`` each time the lease runs out, until ``close``. Call ``poll`` periodically once the link is
        gone. Runs in a thread of its own."""
        has_expired = False
        while True:
            with self._changed:
                remaining = self._remaining()
                if remaining <= 0:
                    remaining = POLL  # a frame renews the lease: new errands may come
                self._changed.wait(min(remaining, POLL) if self._is_detached else remaining)
                if self._is_closed:
                    return
                is_detached = self._is_detached
                is_over = self._remaining() <= 0
            if is_detached:
                poll()
            if is_over and not has_expired and not (not is_detached and self._has_unread()):
                expired()
            has_expired = is_over and (has_expired or is_detached or not self._has_unread())

    def _remaining(self) -> float:
        """Return the seconds until the lease runs out. Called with the lock held."""
        renewed = self._renewed
        if self._is_detached or time.monotonic() - renewed >= self._seconds:
            data = os.pread(self._file, _TIME.size, 0)
            if len(data) == _TIME.size:
                other = _TIME.unpack(data)[0]
                renewed = max(renewed, other) if other <= time.monotonic() else renewed
        return renewed + self._seconds - time.monotonic()
