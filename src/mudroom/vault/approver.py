"""Approvers that ask by the queue (``vault/approval.py``), of commands and of hosts.

Whatever goes wrong with the queue raises; who calls an approver takes that for a refusal (``core/approval.py:asked``;
the gate's adapter does it itself).
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.approval import CommandAnswer, CommandQuestion, HostQuestion
from mudroom.core.flow import Answer, Question
from mudroom.core.queued import answer_of
from mudroom.errors import MudroomError
from mudroom.vault.approval import Queue

PATIENCE = 300.0
"""Seconds for an answer about a command."""
OF_A_HOST = 55.0
"""Seconds for one about a host: a little less than the gate waits."""


class QueueApprover:
    """Waits for ``patience`` seconds, then refuses. With 0 it does not wait: the question stays in the queue, and who
    asks again gets what was answered meanwhile."""

    def __init__(
        self,
        queue: Queue,
        patience: float = PATIENCE,
        over: int = -1,
        waiting: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """``over``: a descriptor that is readable as soon as nobody waits for the answer any more. ``waiting`` is told
        the question's name if it has to be waited for."""
        self._queue, self._patience, self._over, self._waiting = queue, patience, over, waiting

    def __call__(self, question: CommandQuestion) -> CommandAnswer:
        """Raises MudroomError."""
        with self._queue.put(question, self._patience) as ticket:
            decision = ticket.look()
            if decision is not None:
                return answer_of(decision)
            if self._patience <= 0:
                return pending(ticket.asked.name)
            self._waiting(ticket.asked.name)
            return answer_of(ticket.wait(self._patience, self._over))


def pending(name: str) -> CommandAnswer:
    return CommandAnswer(False, by="queue", reason=f"waiting for approval {name}: mudroom approve {name}")


class HostApprover:
    """The gate's questions of one session (``gateway.py:Approver``), by the queue. Who has the gate writes the rule of
    an answer that is to be kept. Any failure refuses."""

    def __init__(self, queue: Queue, fork: str, agent: str, patience: float = OF_A_HOST) -> None:
        self._queue, self._fork, self._agent, self._patience = queue, fork, agent, patience

    def __call__(self, question: Question, over: int) -> Answer:
        asked = HostQuestion(question.host, question.port, question.way, self._fork, self._agent)
        try:
            with self._queue.put(asked, self._patience) as ticket:
                decision = ticket.wait(self._patience, over)
        except (MudroomError, OSError):
            return Answer(False)
        return Answer(decision.state == "allowed", decision.keep and decision.state in ("allowed", "denied"))
