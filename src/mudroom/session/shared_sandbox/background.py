"""A command in the background of a fork, as whoever has started it, or asks for it by its id, has it in hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mudroom.core.tree.path import show
from mudroom.sandbox.client.capture import GRACE

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundEnd, BackgroundStart
    from mudroom.core.result import Result
    from mudroom.sandbox.host.processes import ProcessUsage
    from mudroom.session.sandboxes import Sandboxes
    from mudroom.vault.forks.background import StreamPart

LATER = 0.05
"""Seconds between two looks at what another process has written down."""


class Background:
    """A command in the background of a fork. It ends with its session."""

    def __init__(self, sandboxes: Sandboxes, started: BackgroundStart, refused: Result | None = None) -> None:
        self._sandboxes, self.started, self.refused = sandboxes, started, refused
        """``refused``: why it was not started; None: it was."""
        self.id, self.fork, self.argv = started.id, started.fork, started.command

    @classmethod
    def none(cls, sandboxes: Sandboxes, refused: Result) -> Background:
        """One that was refused: it has no id, and nothing can be asked of it but why."""
        from mudroom.core.background import BackgroundStart

        return cls(sandboxes, BackgroundStart("", refused.fork, refused.command, b"", 0, 0), refused)

    def __repr__(self) -> str:
        return f"Background({self.id!r}, {show(b' '.join(self.argv))!r})"

    def usage(self) -> ProcessUsage | None:
        """What its processes use just now, and their numbers outside and inside; None if there are none."""
        return self._sandboxes.usages().get(self.id)

    def poll(self) -> BackgroundEnd | None:
        """How it has ended; None while it runs. Of one whose keeper was killed that is found out here."""
        rows = self._sandboxes.backgrounds(self.fork)
        return next((ended for started, ended in rows if started.id == self.id), None)

    def wait(self, timeout: float | None = None) -> BackgroundEnd | None:
        """Block until it has ended and what it has changed is collected; None after ``timeout`` seconds."""
        return self._sandboxes.waited(self.started, timeout, lambda: self._poll_until(timeout))

    def _poll_until(self, timeout: float | None) -> BackgroundEnd | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (ended := self.poll()) is None and (deadline is None or time.monotonic() < deadline):
            time.sleep(LATER)
        return ended

    def end(self, grace: float = GRACE) -> BackgroundEnd | None:
        """Ask it to end (SIGTERM); what is left of it after ``grace`` seconds is killed. Blocks until it is gone."""
        self._sandboxes.end(self.fork, [self.id], grace)
        return self.wait()

    def output(self) -> tuple[bytes, bytes]:
        """What it has written to stdout and stderr until now: the last of it, at least a mebibyte of each."""
        from mudroom.vault.forks.background import read_ring

        place = self._sandboxes.place(self.started)
        return read_ring(place + b"/stdout"), read_ring(place + b"/stderr")

    def printed(self, marks: Sequence[str] = ("", ""), limit: int = 1 << 16) -> tuple[StreamPart, StreamPart]:
        """What it has written to stdout and stderr since the ``marks`` of an earlier answer, or the end of it: at most
        so many bytes of each, however fast it writes."""
        from mudroom.vault.forks.background import read_part

        place = self._sandboxes.place(self.started)
        out, err = marks
        return read_part(place + b"/stdout", out, limit), read_part(place + b"/stderr", err, limit)
