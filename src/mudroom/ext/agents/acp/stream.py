"""A connection's two ends: lines that are read, and lines that are written.

Rules of this file:

1. A reader never waits for the writer in the other direction: each written end has its own thread. An agent that does
   not read while it writes, and an editor that does the same, cannot stop each other through mudroom.
2. Lines that are passed on wait while much is unwritten, so a slow reader slows its peer as without mudroom. mudroom's
   own lines never wait.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator

from mudroom.core.system.write_all import write_all
from mudroom.ext.agents.acp.message import HEAD, MOST_BYTES, AcpMessage, Malformed, parse, too_long

_CHUNK = 1 << 16
UNWRITTEN = 8 << 20
"""Unwritten bytes above which a line that is passed on waits."""


def messages(descriptor: int, most: int = MOST_BYTES) -> Iterator[AcpMessage | Malformed]:
    """Yield a stream's messages until its end. Empty lines are left out. A line with more than ``most`` bytes is read
    to its end and not kept."""
    pending = bytearray()
    scanned = dropped = 0
    while chunk := _read(descriptor):
        pending += chunk
        start = 0
        while (end := pending.find(b"\n", max(scanned, start))) >= 0:
            if dropped:
                yield too_long(bytes(pending[:HEAD]), dropped + end - start)
                dropped = 0
            else:
                line = bytes(pending[start:end]).strip(b" \t\r")
                if line:
                    yield parse(line) if len(line) <= most else too_long(line[:HEAD], len(line))
            start = scanned = end + 1
        del pending[:start]
        scanned = len(pending)
        if scanned > most:
            dropped += scanned - HEAD
            del pending[HEAD:]
            scanned = HEAD
    if pending.strip(b" \t\r") and not dropped:
        yield parse(bytes(pending).strip(b" \t\r"))


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""  # the other end is gone (EIO from a terminal, ECONNRESET from a socket)


class Outbox:
    """Lines for one stream, and the thread that writes them. ``_changed`` guards the other attributes."""

    def __init__(self, descriptor: int, broken: Callable[[], None] = lambda: None) -> None:
        """``descriptor`` is owned, and closed when the last line is written. ``broken``: called once, in the writing
        thread, if the stream has no reader any more."""
        self._descriptor, self._broken = descriptor, broken
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._unwritten = 0
        self._closing = self._is_over = False
        self._thread = threading.Thread(target=self._write_all, name="acp outbox", daemon=True)
        self._thread.start()

    def put(self, line: bytes, *, waits: bool = False) -> None:
        """Send a line. ``waits``: wait while much is unwritten. Lines after ``close`` are dropped."""
        with self._changed:
            while waits and self._unwritten > UNWRITTEN and not self._is_over:
                self._changed.wait()
            if self._closing or self._is_over:
                return
            self._lines.append(line)
            self._unwritten += len(line)
            self._changed.notify_all()

    @property
    def is_behind(self) -> bool:
        """Whether much is unwritten."""
        with self._changed:
            return self._unwritten > UNWRITTEN

    def close(self) -> None:
        """Close the stream when all lines so far are written."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until the stream is closed. Return whether it is."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _write_all(self) -> None:
        try:
            while (line := self._next()) is not None:
                write_all(self._descriptor, line + b"\n")
                with self._changed:
                    self._unwritten -= len(line)
                    self._changed.notify_all()
        except OSError:
            self._end()
            self._broken()
        else:
            self._end()

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._lines and not self._closing:
                self._changed.wait()
            return self._lines.popleft() if self._lines else None

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._lines.clear()
            self._changed.notify_all()
        os.close(self._descriptor)
