"""Whom is asked: about an agent's command who sits at this terminal, the queue, or nobody; about a host that a command
wants to reach the same. Nothing is loaded, and nothing opened, before there is a question.

    --ask       about a command                       about a host
    terminal    here and in the queue                 here and in the queue
    queue       in the queue; it is waited for        in the queue; it is waited for
    later       in the queue; it is refused now       as without --ask
    never       nobody: it is refused                 nobody: it is refused
    (none)      terminal if somebody sits there,      here and in the queue if somebody sits there, else in the queue
                else later                            if somebody listens to it, else nobody: it is refused
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal

from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError
from mudroom.session import Session

if TYPE_CHECKING:
    from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
    from mudroom.core.network.flow import FlowAnswer, FlowQuestion
    from mudroom.session.confinement.gateway import Waiting
    from mudroom.session.upkeep import HostApprover

Ask = Literal["terminal", "queue", "later", "never"]
ASKS: tuple[Ask, ...] = ("terminal", "queue", "later", "never")


def ask_by(ask: Ask | None, context: Context, session: Session) -> None:
    """About commands. ``ask``: as the command line says; None: the terminal, or later."""
    way = ask or ("terminal" if _sits(context) else "later")

    def commands(question: CommandQuestion) -> CommandAnswer:
        from mudroom.cli.terminal.command_approver import by_queue, first_of

        queue, patience = session.vault.approvals, session.actor.settings.approval_timeout
        if way == "terminal":
            return first_of(context.terminal, queue, patience)(question)
        return by_queue(context.terminal, queue, patience if way == "queue" else 0, quiet=context.as_json)(question)

    session.approval.ask_about(
        None if way == "never" else commands, lambda rule, allow: remember_command(session, rule, allow)
    )


def ask_about_hosts_by(ask: Ask | None, context: Context, session: Session, *, stays: bool = True) -> None:
    """``stays``: False of a command that will have no terminal any more when it wants to reach a host. Raises
    UsageError if ``ask`` is the terminal, and nobody sits there."""
    if ask == "terminal" and not _sits(context):
        raise UsageError("--ask terminal: there is no terminal to ask on", "leave --ask out, or --ask queue")
    if ask == "never":
        return

    def here(question: FlowQuestion, over: int) -> FlowAnswer:
        from mudroom.cli.terminal.asking import first_of

        return first_of(context.terminal, session.vault.approvals, session.actor.agent or "", question, over)

    at_terminal = stays and _sits(context) and ask != "queue"
    session.machine.ask_about_hosts(here if at_terminal else _HostsElsewhere(session, anyway=ask == "queue"))


def _sits(context: Context) -> bool:
    """Whether somebody sits at this terminal."""
    return context.terminal.interactive and not context.as_json


class _HostsElsewhere:
    """Asks in the queue about hosts (``gateway.py:Elsewhere``)."""

    def __init__(self, session: Session, *, anyway: bool) -> None:
        self._session, self._anyway = session, anyway

    def __call__(self, question: FlowQuestion, over: int) -> FlowAnswer:
        return self._approver()(question, over)

    def begin(self, question: FlowQuestion) -> Waiting:
        return self._approver().begin(question)

    def _approver(self) -> HostApprover:
        from mudroom.session.upkeep import HostApprover

        return HostApprover(self._session.vault.approvals, self._session.actor.agent or "", anyway=self._anyway)


def remember_command(session: Session, pattern: str, allow: bool) -> None:
    """Write the rule of an answer for this machine."""
    from mudroom.policy import command_answers

    state = os.path.dirname(os.path.dirname(session.vault.path))
    note = time.strftime("asked %Y-%m-%d")
    command_answers.remember(session.project, pattern, note, "allow" if allow else "deny", state=state)
