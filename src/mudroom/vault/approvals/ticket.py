"""A question in the queue, held by the process that waits for its answer (``vault/approvals/queue.py``)."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from mudroom.core.approval_queue import QueueDecision, QueuedQuestionRecord, State

if TYPE_CHECKING:
    from mudroom.vault.approvals.bell import Bell
    from mudroom.vault.approvals.question import WaiterLock
    from mudroom.vault.approvals.queue import Queue

LOOK = 2.0
"""Seconds after which a waiter looks without being rung for."""


class Ticket:
    """A question in the queue, and the right to use its answer once. Close it."""

    def __init__(self, queue: Queue, asked: QueuedQuestionRecord, attendance: WaiterLock) -> None:
        self._queue, self.asked, self._attendance = queue, asked, attendance
        self._bell: Bell | None = None

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop waiting. An unanswered question stays in the queue."""
        if self._bell is not None:
            self._bell.close()
            self._bell = None
        self._attendance.end()

    def fileno(self) -> int:
        """Return a descriptor that is readable when it is time to ``look``, or -1: then look every ``LOOK`` seconds."""
        if self._bell is None:
            self._bell = self._queue.listen()
        return self._bell.fileno()

    def look(self) -> QueueDecision | None:
        """Return the decision, and use it up; None if there is none yet.

        Raise MudroomError if it cannot be read or used: then nothing is allowed.
        """
        if self._bell is not None:
            self._bell.clear()
        decision = self._queue.decision(self.asked.name)
        if decision is not None:
            self._queue.use(self.asked.name)
        return decision

    def end(self, state: State, reason: str = "", by: str = "nobody", keep: bool = False) -> tuple[QueueDecision, bool]:
        """End the question and use up the decision. Return the decision, and whether it is this one: another process
        may have decided before.
        """
        decision, ours = self._queue.end(self.asked.name, state, reason, by, keep)
        self._queue.use(self.asked.name)
        return decision, ours

    def wait(self, patience: float, over: int = -1) -> QueueDecision:
        """Wait for the decision, at most ``patience`` seconds. Return it and use it up.

        The question expires after that time, and is withdrawn as soon as ``over`` is readable. Raise MudroomError as
        ``look``.
        """
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
