"""Whom an agent's command is asked about: who sits at this terminal, the queue, or nobody. Nothing is loaded, and
nothing opened, before there is a question."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from mudroom.cli.main import Context
from mudroom.session import Session

if TYPE_CHECKING:
    from mudroom.core.approval import CommandAnswer, CommandApprover, CommandQuestion
    from mudroom.core.flow import Answer, Question

Ask = Literal["terminal", "queue", "later", "never"]
ASKS: tuple[Ask, ...] = ("terminal", "queue", "later", "never")


def whom(ask: Ask | None, context: Context) -> Ask:
    """``ask``: as the command line says; None: it does not. Nobody is kept waiting where nobody can be seen to wait."""
    return ask or ("terminal" if context.terminal.interactive and not context.as_json else "later")


def commands_approver(ask: Ask, context: Context, session: Session) -> CommandApprover | None:
    """None: what needs an approval is refused."""
    if ask == "never":
        return None

    def approve(question: CommandQuestion) -> CommandAnswer:
        from mudroom.keeper import Queue, QueueApprover

        queue, patience = Queue(session.vault.path), session.settings.approval_timeout
        if ask != "terminal":
            return QueueApprover(queue, patience if ask == "queue" else 0)(question)
        from mudroom.cli.approving import first_of

        return first_of(context.terminal, queue, patience)(question)

    return approve


def remember_command(session: Session, pattern: str, allow: bool) -> None:
    """Write the rule of an answer for this machine."""
    from mudroom.rulefile import remember

    remember(session.project, pattern, time.strftime("asked %Y-%m-%d"), "allow" if allow else "deny")


def hosts_by_queue(session: Session, agent: str, question: Question, over: int) -> Answer:
    """The gate's question, for who waits by the queue."""
    from mudroom.keeper import HostApprover, Queue

    return HostApprover(Queue(session.vault.path), "", agent)(question, over)
