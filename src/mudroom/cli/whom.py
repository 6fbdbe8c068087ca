"""Whom an agent's command is asked about: who sits at this terminal, the queue, or nobody. Nothing is loaded, and
nothing opened, before there is a question."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from mudroom.cli.main import Context
from mudroom.errors import UsageError
from mudroom.session import Session

if TYPE_CHECKING:
    from mudroom.core.approval import CommandAnswer, CommandQuestion
    from mudroom.core.flow import Answer, Question
    from mudroom.keeper import Queue

Ask = Literal["terminal", "queue", "later", "never"]
ASKS: tuple[Ask, ...] = ("terminal", "queue", "later", "never")


def ask_by(ask: Ask | None, context: Context, session: Session) -> None:
    """``ask``: as the command line says; None: the terminal, or later. Raises UsageError if nobody sits there."""
    quiet = context.as_json
    if ask == "terminal" and (quiet or not context.terminal.interactive):
        raise UsageError("--ask terminal: there is no terminal to ask on", "--ask queue, --ask later")
    if ask == "never":
        session.ask_about(None)
        return

    def queue() -> Queue:
        from mudroom.keeper import Queue

        return Queue(session.vault.path)

    def commands(question: CommandQuestion) -> CommandAnswer:
        from mudroom.cli.approving import approver_by
        from mudroom.core.approval import asked

        approver = approver_by(ask, context.terminal, queue, session.settings.approval_timeout, quiet=quiet)
        return asked(approver, question)

    def hosts(question: Question, over: int) -> Answer:
        from mudroom.cli.approving import hosts_by_queue

        return hosts_by_queue(queue, "", session.agent or "")(question, over)

    session.ask_about(commands, lambda pattern, allow: _remember(session, pattern, allow))
    if ask == "queue":
        session.ask_about_hosts(hosts)


def _remember(session: Session, pattern: str, allow: bool) -> None:
    """Write the rule of an answer for this machine."""
    from mudroom.rulefile import remember

    remember(session.project, pattern, time.strftime("asked %Y-%m-%d"), "allow" if allow else "deny")
