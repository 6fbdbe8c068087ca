"""Approvers that ask through the queue (``vault/approvals/queue.py``), for commands and for hosts.

If the queue fails, the exception reaches the caller, which treats it as a refusal
(``core/approval/approval.py:ask_approver``). ``HostApprover`` returns a refusal itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion, HostQuestion
from mudroom.core.approval_queue import QueueDecision, answer_of
from mudroom.core.network.flow import NOBODY, FlowAnswer, FlowQuestion
from mudroom.core.text.answer_place import answered_by
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.vault.approvals.queue import Queue, Ticket

PATIENCE = 300.0
"""Seconds to wait for an answer about a command."""
OF_A_HOST = 55.0
"""Seconds to wait for an answer about a host: a little less than the gate waits."""


class QueueApprover:
    """Asks about a command, and refuses after ``patience`` seconds without an answer.

    With a patience of 0 it does not wait: the question stays in the queue, and a later call with the same question gets
    an answer given meanwhile.
    """

    def __init__(
        self,
        queue: Queue,
        patience: float = PATIENCE,
        over: int = -1,
        waiting: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """``over``: a descriptor that becomes readable when no caller waits for the answer any more. ``waiting``:
        called with the question's name before waiting."""
        self._queue, self._patience, self._over, self._waiting = queue, patience, over, waiting

    def __call__(self, question: CommandQuestion) -> CommandAnswer:
        """Return the answer; a refusal with the reason if the queue cannot be used."""
        try:
            return self._asked(question)
        except MudroomError as error:
            return CommandAnswer(False, by="nobody", reason=f"nobody could be asked: {error}")

    def _asked(self, question: CommandQuestion) -> CommandAnswer:
        """Return the answer. Raise MudroomError if the queue cannot be used."""
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
    """Asks one session's gate questions through the queue (``session/confinement/host_approver.py:RemoteApprover``).

    If an answer is to be kept, the gate's owner writes the rule. Any failure is a refusal.
    """

    def __init__(self, queue: Queue, agent: str, patience: float = OF_A_HOST, *, anyway: bool = True) -> None:
        """``anyway``: wait even if no process that may answer is listening, because one may start."""
        self._queue, self._agent, self._patience, self._anyway = queue, agent, patience, anyway

    def begin(self, question: FlowQuestion) -> HostWaiting:
        """Put the question without waiting for the answer."""
        if not (self._anyway or self._queue.listeners()):
            return HostWaiting(None, 0, NOBODY)
        try:
            return HostWaiting(self._queue.put(host_question(question, self._agent), self._patience), self._patience)
        except (MudroomError, OSError) as error:
            return HostWaiting(None, 0, failed(error))


class HostWaiting:
    """A question about a host, asked while the command continues
    (``session/confinement/host_approver.py:PendingQuestion``).

    Owner: the thread that attends to the command.
    """

    def __init__(self, ticket: Ticket | None, patience: float, answer: FlowAnswer | None = None) -> None:
        """``answer``: given if the question could not be put."""
        self._ticket, self._patience, self._until = ticket, patience, time.monotonic() + patience
        self._answer = answer

    @property
    def name(self) -> str:
        """The question's name in the queue; empty: it could not be put there."""
        return self._ticket.asked.name if self._ticket is not None else ""

    def fileno(self) -> int:
        return self._ticket.fileno() if self._ticket is not None else -1

    def look(self) -> FlowAnswer | None:
        if self._answer is None and self._ticket is not None:
            try:
                decision = self._ticket.look()
                if decision is None and time.monotonic() >= self._until:
                    decision, _ours = self._ticket.end("expired", f"nobody has answered in {self._patience:g} s")
                self._answer = None if decision is None else host_answer(decision)
            except (MudroomError, OSError) as error:
                self._answer = failed(error)
        return self._answer

    def close(self) -> None:
        if self._ticket is None:
            return
        with suppress(MudroomError, OSError):  # the question stays in the queue, without a waiter
            if self._answer is None:
                self._ticket.end("withdrawn", "nobody waits for the answer any more")
            self._ticket.close()
        self._ticket = None


def host_question(question: FlowQuestion, agent: str) -> HostQuestion:
    return HostQuestion(question.host, question.port, question.way, question.fork, agent, question.hold)


def host_answer(decision: QueueDecision) -> FlowAnswer:
    """Return the answer for the gate. A refusal names the answerer and the reason."""
    allowed = decision.state == "allowed"
    if decision.state not in ("allowed", "denied"):
        return FlowAnswer(False, why=f"and {decision.reason}")
    reason = f" ({show(decision.reason.encode())})" if decision.reason else ""
    why = "" if allowed else f"and refused{answered_by(decision.by)}{reason}"
    return FlowAnswer(allowed, decision.keep, why, rule=decision.rule)


def failed(error: Exception) -> FlowAnswer:
    return FlowAnswer(False, why=f"but {error}")
