"""Where questions go: to the terminal, to the queue, or nowhere (then the request is refused). Imports and file
accesses wait until there is a question.

    --ask       about a command                       about a host
    terminal    here and in the queue                 here and in the queue; only in the queue while one of the
                                                      command's programs reads keys from this terminal itself
    queue       in the queue, waiting                 in the queue, waiting
    later       in the queue; refused now             as without --ask
    never       refused                               refused
    (none)      terminal if the session is interac-   here and in the queue if the session is interactive; else in the
                tive, else later                      queue if a page or a terminal listens to it; else refused
"""

from __future__ import annotations

import _thread
from collections.abc import Callable

from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.session.project_session import QueueForHosts
from mudroom.session.project_session import remember_command as remember_command
from mudroom.typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
    from mudroom.core.network.flow import FlowAnswer, FlowQuestion

Ask = Literal["terminal", "queue", "later", "never"]
ASKS: tuple[Ask, ...] = ("terminal", "queue", "later", "never")


def set_command_approver(ask: Ask | None, context: Context, session: Session) -> None:
    """Set how the session asks about commands. ``ask`` is the option --ask; see the table for None."""
    mode = ask or ("terminal" if _is_interactive(context) else "later")

    def approve(question: CommandQuestion) -> CommandAnswer:
        from mudroom.cli.terminal.command_approver import by_queue, first_of

        queue, patience = session.vault.approvals, session.actor.settings.approval_timeout
        if mode == "terminal":
            return first_of(context.terminal, queue, patience)(question)
        return by_queue(context.terminal, queue, patience if mode == "queue" else 0, quiet=context.as_json)(question)

    session.approval.ask_about(
        None if mode == "never" else approve, lambda rule, allow: remember_command(session, rule, allow)
    )


def set_host_approver(ask: Ask | None, context: Context, session: Session, *, stays: bool = True) -> None:
    """Set how the session asks about hosts. ``stays=False``: the command leaves this terminal, so do not ask on it.
    Raise UsageError if ``ask`` is "terminal" and the session is not interactive."""
    if ask == "terminal" and not _is_interactive(context):
        raise UsageError("--ask terminal: there is no terminal to ask on", "leave --ask out, or --ask queue")
    if ask == "never":
        return

    at_terminal = stays and _is_interactive(context) and ask != "queue"
    queue = QueueForHosts(session, anyway=at_terminal or ask == "queue")
    session.machine.ask_about_hosts(_TerminalForHosts(context, session, queue) if at_terminal else queue)


def _is_interactive(context: Context) -> bool:
    """Return whether questions can be asked on this terminal."""
    return context.terminal.interactive and not context.as_json


class _TerminalForHosts:
    """Ask about hosts here and in the queue (``host_approver.py:TerminalApprover``). ``_turn`` locks the terminal:
    commands that run side by side ask one after the other."""

    def __init__(self, context: Context, session: Session, elsewhere: QueueForHosts) -> None:
        self._context, self._session, self.elsewhere = context, session, elsewhere
        self._turn = _thread.allocate_lock()

    def ask(self, question: FlowQuestion, over: int, is_taken: Callable[[], bool]) -> FlowAnswer | None:
        from mudroom.cli.terminal.asking import first_of

        agent = self._session.actor.agent or ""
        with self._turn:
            return first_of(self._context.terminal, self._session.vault.approvals, agent, question, over, is_taken)
