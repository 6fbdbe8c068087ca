"""Handle for a background command in a fork."""

from __future__ import annotations

import os

from mudroom.library.argument import seconds_of
from mudroom.library.life import Life
from mudroom.session import Background
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundEnd


class BackgroundExit(NamedTuple):
    """A background command's exit status."""

    exit_code: int
    """128 + the signal number if a signal ended it."""
    signal: int | None
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


class BackgroundHandle:
    """A command that goes on while other calls are made, at most until its room closes. Thread-safe."""

    def __init__(self, life: Life, background: Background) -> None:
        self._life, self._background = life, background

    def __repr__(self) -> str:
        return f"<mudroom command {self.id} in {self.fork}: {' '.join(self.command)}>"

    @property
    def id(self) -> str:
        """Its name for ``room.background`` and ``mudroom ps``."""
        return self._background.id

    @property
    def fork(self) -> str:
        return self._background.fork

    @property
    def command(self) -> tuple[str, ...]:
        return tuple(map(os.fsdecode, self._background.argv))

    def output(self) -> tuple[str, str]:
        """Return stdout and stderr so far: the tail of each, at least 1 MiB."""
        out, err = self.output_bytes()
        return out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def output_bytes(self) -> tuple[bytes, bytes]:
        with self._life.call():
            return self._background.output()

    def poll(self) -> BackgroundExit | None:
        """Return the exit status, or None while the command runs."""
        with self._life.call():
            return _exit(self._background.poll())

    def wait(self, timeout: float | None = None) -> BackgroundExit | None:
        """Wait until the command has ended and its changes are collected. Return None after ``timeout`` seconds."""
        seconds = seconds_of(timeout)
        with self._life.call():
            return _exit(self._background.wait(seconds))

    def end(self, grace: float = 2.0) -> BackgroundExit | None:
        """Send SIGTERM, then SIGKILL after ``grace`` seconds. Wait until the command has ended."""
        seconds = seconds_of(grace, "grace")
        with self._life.call():
            return _exit(self._background.end(seconds or 0.0))


def _exit(end: BackgroundEnd | None) -> BackgroundExit | None:
    return None if end is None else BackgroundExit(end.exit_code, end.signal, end.timed_out)
