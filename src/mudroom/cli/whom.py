"""Whom an agent's command is asked about: who sits at this terminal, the queue, or nobody. Nothing is loaded, and
nothing opened, before there is a question."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal

from mudroom.cli.main import Context
from mudroom.errors import UsageError
from mudroom.session import Session

if TYPE_CHECKING:
    from mudroom.core.approval import CommandAnswer, CommandQuestion
    from mudroom.core.flow import Answer, Question
    from mudroom.gateway import Waiting
    from mudroom.keeper import HostApprover

Ask = Literal["terminal", "queue", "later", "never"]
ASKS: tuple[Ask, ...] = ("terminal", "queue", "later", "never")


def ask_by(ask: Ask | None, context: Context, session: Session) -> None:
    """``ask``: as the command line says; None: the terminal, or later. Raises UsageError if nobody sits there."""
    somebody = context.terminal.interactive and not context.as_json
    if ask == "terminal" and not somebody:
        raise UsageError("--ask terminal: there is no terminal to ask on", "--ask queue, --ask later")
    way = ask or ("terminal" if somebody else "later")

    def commands(question: CommandQuestion) -> CommandAnswer:
        from mudroom.cli.approving import by_queue, first_of

        queue, patience = session.vault.approvals, session.settings.approval_timeout
        if way == "terminal":
            return first_of(context.terminal, queue, patience)(question)
        return by_queue(context.terminal, queue, patience if way == "queue" else 0, quiet=context.as_json)(question)

    session.ask_about(None if way == "never" else commands, lambda rule, allow: remember_command(session, rule, allow))
    if way == "queue":
        session.ask_about_hosts(_HostsElsewhere(session))


class _HostsElsewhere:
    """Asks in the queue about hosts (``gateway.py:Elsewhere``)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, question: Question, over: int) -> Answer:
        return self._approver()(question, over)

    def begin(self, question: Question) -> Waiting:
        return self._approver().begin(question)

    def _approver(self) -> HostApprover:
        from mudroom.keeper import HostApprover

        return HostApprover(self._session.vault.approvals, "", self._session.agent or "")


def remember_command(session: Session, pattern: str, allow: bool) -> None:
    """Write the rule of an answer for this machine."""
    from mudroom import rulefile

    state = os.path.dirname(os.path.dirname(session.vault.path))
    note = time.strftime("asked %Y-%m-%d")
    rulefile.remember(session.project, pattern, note, "allow" if allow else "deny", state=state)
