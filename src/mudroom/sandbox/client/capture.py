"""Output of a command: passed straight to the caller's descriptors, or captured in memory up to a limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from mudroom.sandbox.client.client import Exit, Running
from mudroom.sandbox.client.connection import wait_readable

SIGTERM, SIGKILL = 15, 9
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for a command that ran out of time."""

Heard = Callable[[str, bytes], None]
"""Called with the name of a stream and the bytes that have just been read from it."""


class CapturedStream:
    """A captured stream: its pipe, the bytes read from it, and whether some were dropped.

    Owner: the thread that attends to the command.
    """

    def __init__(self, name: str, limit: int, heard: Heard | None) -> None:
        self.name = name
        self._heard = heard
        self.read, self.write = os.pipe()
        self.truncated = False
        self._chunks: list[bytes] = []
        self._room = limit

    def take(self) -> bool:
        """Read what is available. Return False at the end of file."""
        chunk = os.read(self.read, 1 << 16)
        self.truncated |= len(chunk) > self._room
        self._chunks.append(chunk[: self._room])
        self._room -= len(self._chunks[-1])
        if chunk and self._heard is not None:
            self._heard(self.name, chunk)
        return bool(chunk)

    @property
    def data(self) -> bytes:
        return b"".join(self._chunks)

    def close_write(self) -> None:
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def close(self) -> None:
        self.close_write()
        os.close(self.read)


class CapturedOutput:
    """The descriptors of one attempt to start a command: those of the caller unchanged, the others captured."""

    def __init__(
        self, stdin: int | None, stdout: int | None, stderr: int | None, limit: int, heard: Heard | None = None
    ) -> None:
        self.stdout = CapturedStream("stdout", limit, heard) if stdout is None else None
        self.stderr = CapturedStream("stderr", limit, heard) if stderr is None else None
        self.streams = tuple(stream for stream in (self.stdout, self.stderr) if stream is not None)
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if stdin is None else -1
        self.descriptors = (
            self._null if stdin is None else stdin,
            self.stdout.write if self.stdout is not None else stdout or 1,
            self.stderr.write if self.stderr is not None else stderr or 2,
        )

    def __enter__(self) -> CapturedOutput:
        return self

    def __exit__(self, *_error: object) -> None:
        for stream in self.streams:
            stream.close()
        if self._null >= 0:
            os.close(self._null)


class Watch(NamedTuple):
    """A periodic task while a command runs."""

    every: float
    """Seconds between two calls."""
    look: Callable[[], float]
    """Return for how many seconds the command was held up: they do not count towards its timeout."""


class Beside(Protocol):
    """Work beside a running command, on descriptors of its own: the gate."""

    def descriptors(self) -> Collection[int]:
        """Return the descriptors to wait for; called before every wait."""

    def attend(self, ready: Collection[int]) -> float:
        """Handle the readable descriptors. Return seconds as ``Watch.look`` does."""


def attend(
    running: Running,
    output: CapturedOutput,
    timeout: float | None,
    meanwhile: Callable[[], None],
    watch: Watch | None = None,
    beside: Beside | None = None,
) -> tuple[Exit, bool]:
    """Wait for a command that has received its descriptors, and drain its streams. Return how it ended and whether it
    ran out of time.

    ``meanwhile`` is called once, as soon as the command is on its way, for work that need not wait for it. An exception
    here (Ctrl-C) kills the sandbox before it is passed on.
    """
    started = time.monotonic()
    deadline = None if timeout is None else started + timeout
    next_look = None if watch is None else started + watch.every
    timed_out = False
    for stream in output.streams:
        stream.close_write()  # this process's copies: a stream ends when the command's are closed
    try:
        meanwhile()
        open_streams = {stream.read: stream for stream in output.streams}
        report = running.fileno()
        while True:
            others = beside.descriptors() if beside is not None else ()
            ready = wait_readable([report, *open_streams, *others], _sooner(deadline, next_look))
            now = time.monotonic()
            # Checked first: some descriptor may always be ready.
            if watch is not None and next_look is not None and now >= next_look:
                held = watch.look()
                next_look = time.monotonic() + watch.every
                deadline = None if deadline is None else deadline + held
            elif deadline is not None and now >= deadline and report not in ready:
                running.signal(SIGKILL if timed_out else SIGTERM)
                deadline = None if timed_out else time.monotonic() + GRACE
                timed_out = True
            if beside is not None and any(descriptor in others for descriptor in ready):
                held = beside.attend(ready)
                deadline = None if deadline is None else deadline + held
            for descriptor in ready:
                if descriptor in open_streams and not open_streams[descriptor].take():
                    del open_streams[descriptor]
            if report in ready and not any(descriptor in open_streams for descriptor in ready):
                break
        return running.wait(), timed_out
    except BaseException:
        running.signal(SIGKILL)
        raise


def _sooner(first: float | None, second: float | None) -> float | None:
    return first if second is None else second if first is None else min(first, second)
