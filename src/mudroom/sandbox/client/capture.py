"""Where a command's output goes: straight to the caller's descriptors, or into memory up to a limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from mudroom.sandbox.client.client import Exit, Running
from mudroom.sandbox.client.connection import wait_readable

SIGTERM, SIGKILL = 15, 9
GRACE = 2.0
"""Seconds between asking a command that ran out of time to end, and ending it."""

Heard = Callable[[str, bytes], None]
"""Told the name of a stream and what has just come."""


class CapturedStream:
    """One captured stream: a pipe, what came through it, and whether some was dropped."""

    def __init__(self, name: str, limit: int, heard: Heard | None) -> None:
        self.name = name
        self._heard = heard
        self.read, self.write = os.pipe()
        self.truncated = False
        self._chunks: list[bytes] = []
        self._room = limit

    def take(self) -> bool:
        """Read what is there; False at the end."""
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
    """The descriptors of one attempt to start a command: given ones as they are, the others captured."""

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
    """Something to be done again and again while a command runs."""

    every: float
    """Seconds."""
    look: Callable[[], float]
    """Returns for how many seconds the command was held up: they do not count as its time."""


class Beside(Protocol):
    """Something else that a command needs while it runs: the gate."""

    def descriptors(self) -> Collection[int]:
        """What to wait for; asked for before every wait."""

    def attend(self, ready: Collection[int]) -> float:
        """Do what is to be done about those that are readable. Returns seconds as ``Watch.look`` does."""


def attend(
    running: Running,
    output: CapturedOutput,
    timeout: float | None,
    meanwhile: Callable[[], None],
    watch: Watch | None = None,
    beside: Beside | None = None,
) -> tuple[Exit, bool]:
    """Wait for a command that has been given its descriptors, draining its streams. Returns how it ended and whether
    it ran out of time.

    ``meanwhile`` is called once, as soon as the command is on its way: work that need not wait for it. An exception
    here (Ctrl-C) ends the sandbox before it is passed on.
    """
    started = time.monotonic()
    deadline = None if timeout is None else started + timeout
    looking = None if watch is None else started + watch.every
    timed_out = False
    for stream in output.streams:
        stream.close_write()  # ours: the end of the stream comes when the command's are closed
    try:
        meanwhile()
        open_streams = {stream.read: stream for stream in output.streams}
        report = running.fileno()
        while True:
            others = beside.descriptors() if beside is not None else ()
            ready = wait_readable([report, *open_streams, *others], _sooner(deadline, looking))
            now = time.monotonic()
            if watch is not None and looking is not None and now >= looking:  # also where there is always something
                held = watch.look()
                looking = time.monotonic() + watch.every
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


def _sooner(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else min(one, other)
