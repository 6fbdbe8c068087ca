"""Start a background command in a fork; the handle on such a command.

Steps: judge, ask, take the fork, find or open a shared sandbox, checkpoint, journal, start.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from mudroom.core.background import BackgroundStart
from mudroom.core.result import text, verdict_to_json
from mudroom.core.tree.quote import show_words
from mudroom.errors import Unsupported
from mudroom.sandbox.client.capture import GRACE
from mudroom.session.joined_sandbox import JoinedSandbox
from mudroom.session.opening import Opening
from mudroom.session.order import Case, Order, Outcome
from mudroom.session.run import Parts, refused
from mudroom.session.sandboxes import Sandboxes
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.forks.background import read_part, read_ring
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundEnd
    from mudroom.core.result import Result
    from mudroom.sandbox.host.processes import ProcessUsage
    from mudroom.vault.forks.background import StreamPart

LATER = 0.05
"""Seconds between two reads of the rows that another process writes."""


class Background:
    """A background command in a fork. It ends with its session."""

    def __init__(self, sandboxes: Sandboxes, started: BackgroundStart, refused: Result | None = None) -> None:
        self._sandboxes, self.started, self.refused = sandboxes, started, refused
        """``refused``: the result of a command that was refused; None: it was started."""
        self.id, self.fork, self.argv = started.id, started.fork, started.command

    @classmethod
    def none(cls, sandboxes: Sandboxes, refused: Result) -> Background:
        """Return the handle for a refused command, without an id and with the reason (``refused``)."""
        return cls(sandboxes, BackgroundStart("", refused.fork, refused.command, b"", 0, 0), refused)

    def __repr__(self) -> str:
        return f"Background({self.id!r}, {show_words(self.argv)!r})"

    def usage(self) -> ProcessUsage | None:
        """Return its processes' present resource use, and their pids outside and inside; None if none runs."""
        return self._sandboxes.usages().get(self.id)

    def poll(self) -> BackgroundEnd | None:
        """Return how it has ended; None while it runs. If the process that held it was killed, settle its end first."""
        rows = self._sandboxes.backgrounds(self.fork)
        return next((ended for started, ended in rows if started.id == self.id), None)

    def wait(self, timeout: float | None = None) -> BackgroundEnd | None:
        """Block until it has ended and its changes are collected. Return None after ``timeout`` seconds."""
        return self._sandboxes.waited(self.started, timeout, lambda: self._poll_until(timeout))

    def _poll_until(self, timeout: float | None) -> BackgroundEnd | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (ended := self.poll()) is None and (deadline is None or time.monotonic() < deadline):
            time.sleep(LATER)
        return ended

    def end(self, grace: float = GRACE) -> BackgroundEnd | None:
        """Send SIGTERM, then SIGKILL after ``grace`` seconds. Block until it is gone."""
        self._sandboxes.end(self.fork, [self.id], grace)
        return self.wait()

    def output(self) -> tuple[bytes, bytes]:
        """Return its stdout and stderr so far: the end of each, at least a mebibyte."""
        place = self._sandboxes.place(self.started)
        return read_ring(place + b"/stdout"), read_ring(place + b"/stderr")

    def printed(self, marks: Sequence[str] = ("", ""), limit: int = 1 << 16) -> tuple[StreamPart, StreamPart]:
        """Return its stdout and stderr since an earlier answer's ``marks``, or the end of each: at most ``limit`` bytes
        each, however fast it writes."""
        place = self._sandboxes.place(self.started)
        out, err = marks
        return read_part(place + b"/stdout", out, limit), read_part(place + b"/stderr", err, limit)


# --- starting ---


def start(parts: Parts, order: Order) -> Background:
    """Start a background command in its order's fork, which is made if it does not exist. If the command is refused,
    return a handle with the reason (``Background.refused``). Raise Unsupported on Windows."""
    if sys.platform == "win32":
        raise Unsupported("a command in the background", "namespaces that others can join", "a job")
    name = f"run-{parts.forks.new_id()}" if order.fork is None else order.fork
    case = parts.approval.asked(order, parts.approval.judge(order), name)
    if not case.allowed:
        return Background.none(parts.sandboxes, refused(parts, order, case))
    with parts.forks.taken(name, named=order.fork is not None) as (fork, is_new):
        with parts.forks.users.opening(fork.name):
            background = _started(parts, fork, order, case)
        if background is not None:
            return background
        if is_new:
            parts.forks.take_back(fork)
        return Background.none(parts.sandboxes, refused(parts, order, case.changed()))


def _started(parts: Parts, fork: Fork, order: Order, case: Case) -> Background | None:
    """Return None if the command has changed since its approval."""
    outcome = Outcome()
    with parts.sandboxes.joined(fork, order, outcome) as place:
        if place is not None:
            if not parts.approval.holds(order, case, fork):
                return None
            point = place.checkpoint_before() if case.wants_checkpoint else None
            return _begun(parts, fork, order, case, place, point)
    opening = Opening(parts.machine, parts.forks, fork, order, outcome)
    try:
        if not parts.approval.holds(order, case, fork):
            opening.close()
            return None
        point = opening.checkpoint_before() if case.wants_checkpoint else None
        shared = opening.made()
    except BaseException:
        opening.close()
        raise
    try:
        return _begun(parts, fork, order, case, parts.sandboxes.place_in(shared, fork, order, outcome), point)
    finally:
        shared.begin()


def _begun(parts: Parts, fork: Fork, order: Order, case: Case, place: JoinedSandbox, point: str | None) -> Background:
    _environment, inside = place.inside()
    started = BackgroundStart(
        parts.forks.new_id(),
        fork.name,
        order.argv,
        inside,
        parts.forks.clock(),
        os.getpid(),
        order.grant.level,
        order.actor.agent or "",
        order.timeout,
        order.companion,
    )
    _journal(parts, order, started, case, point)  # first: a command that cannot be journalled is not started
    place.start(started)
    return Background(parts.sandboxes, started)


def _journal(parts: Parts, order: Order, started: BackgroundStart, case: Case, point: str | None) -> None:
    data = {
        "id": started.id,
        "command": [text(word) for word in started.command],
        "cwd": text(order.cwd),
        "agent": order.actor.agent,
        "verdict": verdict_to_json(case.final),
        "checkpoint": point,
        "level": started.level,
        "timeout": started.timeout,
    }
    parts.forks.vault.journal.append("background", started.fork, data, time=started.time)
