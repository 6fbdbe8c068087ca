"""A question that was put, held by the one who waits for the answer (``vault/approvals/queue.py``)."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from mudroom.core.approval_queue import QueueDecision, QueuedQuestionRecord, State

if TYPE_CHECKING:
    from mudroom.vault.approvals.bell import Bell
    from mudroom.vault.approvals.question import Attendance
    from mudroom.vault.approvals.queue import Queue

LOOK = 2.0
"""Seconds after which who waits looks without being rung for."""


class Ticket:
    """A question that was put, and the right to use its answer, once. To be closed."""

    def __init__(self, queue: Queue, asked: QueuedQuestionRecord, attendance: Attendance) -> None:
        self._queue, self.asked, self._attendance = queue, asked, attendance
        self._bell: Bell | None = None

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Nobody waits any more; the question stays, if it is not answered."""
        if self._bell is not None:
            self._bell.close()
            self._bell = None
        self._attendance.end()

    def fileno(self) -> int:
        """Readable when it is time to ``look``; -1 if that can only be tried now and then (``LOOK``)."""
        if self._bell is None:
            self._bell = self._queue.listen()
        return self._bell.fileno()

    def look(self) -> QueueDecision | None:
        """What was decided, if something was: it is used up thereby. Raises MudroomError: nothing is allowed then."""
        if self._bell is not None:
            self._bell.heard()
        decision = self._queue.decision(self.asked.name)
        if decision is not None:
            self._queue.use(self.asked.name)
        return decision

    def end(self, state: State, reason: str = "", by: str = "nobody", keep: bool = False) -> tuple[QueueDecision, bool]:
        """How it has ended, used up, and whether it was by this call: somebody may have decided before."""
        decision, ours = self._queue.end(self.asked.name, state, reason, by, keep)
        self._queue.use(self.asked.name)
        return decision, ours

    def wait(self, patience: float, over: int = -1) -> QueueDecision:
        """What is decided in so many seconds; expired after them, withdrawn as soon as ``over`` is readable. Raises
        MudroomError: nothing is allowed then."""
        until = time.monotonic() + patience
        poller = select.poll()
        for descriptor in (self.fileno(), over):
            if descriptor >= 0:
                poller.register(descriptor, select.POLLIN)
        try:
            while (decision := self.look()) is None:
                left = until - time.monotonic()
                if left <= 0:
                    return self.end("expired", f"nobody has answered in {patience:g} s")[0]
                if over in dict(poller.poll(min(left, LOOK) * 1000 + 1)):
                    return self.end("withdrawn", "nobody waits for the answer any more")[0]
        except KeyboardInterrupt:
            self.end("withdrawn", "interrupted")
            raise
        return decision
