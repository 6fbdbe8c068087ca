"""A command's streams: relayed to the caller's descriptors, or captured in memory up to a limit."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from mudroom.core.system.closing import ClosedOnError, Closing
from mudroom.errors import MudroomError
from mudroom.sandbox.client.connection import wait_readable, wait_ready
from mudroom.typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Running
    from mudroom.sandbox.client.invocation import Exit
    from mudroom.sandbox.client.stream import Ready, StreamRelay

SIGTERM, SIGKILL = 15, 9
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for a command that ran out of time."""

Heard = Callable[[str, bytes], None]
"""Called with a stream's name and the bytes that have just been read from it."""


class CapturedStream:
    """A captured stream: its pipe, the bytes read from it, and whether some were dropped.

    Owner: the thread that attends to the command.
    """

    def __init__(self, name: str, limit: int, heard: Heard | None) -> None:
        self.name = name
        self._heard = heard
        self.read, self.theirs = os.pipe()
        self.truncated = self.ended = False
        self._chunks: list[bytes] = []
        self._room = limit

    def events(self) -> dict[int, int]:
        return {} if self.ended else {self.read: select.POLLIN}

    def has_more(self) -> bool:
        return not self.ended and bool(wait_readable([self.read], 0.0))

    def attend(self, _ready: Ready) -> None:
        chunk = os.read(self.read, 1 << 16)
        self.truncated |= len(chunk) > self._room
        self._chunks.append(chunk[: self._room])
        self._room -= len(self._chunks[-1])
        self.ended = not chunk
        if chunk and self._heard is not None:
            self._heard(self.name, chunk)

    @property
    def data(self) -> bytes:
        return b"".join(self._chunks)

    def close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def close(self) -> None:
        self.close_theirs()
        os.close(self.read)


class CapturedOutput(Closing):
    """The streams for one attempt to start a command. ``descriptors`` are the command's: each a pipe, /dev/null opened
    anew, or one from ``own``."""

    def __init__(
        self,
        stdin: int | None,
        stdout: int | None,
        stderr: int | None,
        limit: int,
        heard: Heard | None = None,
        own: Collection[int] = (),
    ) -> None:
        """``own``: descriptors that mudroom made itself, passed on as they are."""
        self._own, self._nulls = own, list[int]()
        self.streams: list[CapturedStream] = []
        self.relays: list[StreamRelay] = []
        with ClosedOnError(self):
            self.descriptors = self._input(stdin), *self._outputs(stdout, stderr, limit, heard)

    def close(self) -> None:
        for stream in self.all:
            stream.close()
        while self._nulls:
            os.close(self._nulls.pop())

    @property
    def all(self) -> tuple[CapturedStream | StreamRelay, ...]:
        return (*self.streams, *self.relays)

    @property
    def outputs(self) -> tuple[CapturedStream | StreamRelay, ...]:
        return (*self.streams, *(relay for relay in self.relays if relay.is_output))

    def captured(self, name: str) -> bytes:
        """Return a stream's captured bytes; empty if it was not captured."""
        return b"".join(stream.data for stream in self.streams if stream.name == name)

    @property
    def failures(self) -> list[str]:
        """Failures of the caller's descriptors, as clauses."""
        if not self.relays:
            return []
        from mudroom.sandbox.client.stream import failures

        return failures(self.relays)

    def _input(self, stdin: int | None) -> int:
        if stdin is None or stdin in self._own:
            return self._null(os.O_RDONLY) if stdin is None else stdin
        from mudroom.sandbox.client.stream import InputRelay, leads_to_null

        if leads_to_null(stdin):
            return self._null(os.O_RDONLY)
        relay = InputRelay(stdin)
        self.relays.append(relay)
        return relay.theirs

    def _outputs(self, stdout: int | None, stderr: int | None, limit: int, heard: Heard | None) -> tuple[int, int]:
        out = self._output("stdout", stdout, limit, heard)
        if stdout is not None and stderr is not None and stderr not in self._own:
            from mudroom.sandbox.client.stream import is_same

            if is_same(stdout, stderr):
                return out, out
        return out, self._output("stderr", stderr, limit, heard)

    def _output(self, name: str, given: int | None, limit: int, heard: Heard | None) -> int:
        if given is None:
            stream = CapturedStream(name, limit, heard)
            self.streams.append(stream)
            return stream.theirs
        if given in self._own:
            return given
        from mudroom.sandbox.client.stream import OutputRelay, leads_to_null

        if leads_to_null(given):
            return self._null(os.O_WRONLY)
        relay = OutputRelay(name, given)
        self.relays.append(relay)
        return relay.theirs

    def _null(self, flags: int) -> int:
        self._nulls.append(os.open(os.devnull, flags | os.O_CLOEXEC))
        return self._nulls[-1]


class Watch(NamedTuple):
    """A periodic task while a command runs."""

    every: float
    """Seconds between two calls."""
    look: Callable[[], float]
    """Return the seconds for which the command was held up: they do not count towards its timeout."""


class Beside(Protocol):
    """Work beside a running command, on its own descriptors: the gate."""

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
    """Wait for a command that has received its descriptors, and drain its streams. Return its end and whether it ran
    out of time.

    ``meanwhile`` is called once, as soon as the command is on its way, for work that need not wait for it. An exception
    here (Ctrl-C) kills the sandbox before it is passed on.
    """
    started = time.monotonic()
    deadline = None if timeout is None else started + timeout
    next_look = None if watch is None else started + watch.every
    timed_out = reported = False
    for stream in output.all:
        stream.close_theirs()  # this process's copies: a stream ends when the command's are closed
    try:
        meanwhile()
        report = running.fileno()
        while True:
            others = beside.descriptors() if beside is not None else ()
            wanted = dict.fromkeys(others if reported else (report, *others), select.POLLIN)
            for stream in output.all:
                wanted |= stream.events()
            ready = wait_ready(wanted, min((at for at in (deadline, next_look) if at is not None), default=None))
            now = time.monotonic()
            # Checked first: some descriptor may always be ready.
            if watch is not None and next_look is not None and now >= next_look:
                held = watch.look()
                next_look = time.monotonic() + watch.every
                deadline = None if deadline is None else deadline + held
            elif deadline is not None and now >= deadline and report not in ready and not reported:
                running.signal(SIGKILL if timed_out else SIGTERM)
                deadline = None if timed_out else time.monotonic() + GRACE
                timed_out = True
            if beside is not None and any(descriptor in others for descriptor in ready):
                held = beside.attend(list(ready))
                deadline = None if deadline is None else deadline + held
            for stream in output.all:
                if any(descriptor in ready for descriptor in stream.events()):
                    stream.attend(ready)
            reported |= report in ready
            if reported and not any(stream.has_more() for stream in output.outputs):
                break
        return running.wait(), timed_out
    except BaseException:
        with suppress(MudroomError):  # the launcher is gone, and the sandbox with it: the first exception says so
            running.signal(SIGKILL)
        raise
