"""A room's approvers: the caller's own function, the queue that ``mudroom approve`` answers, or none.

    ask            about an agent's command                        about a host that no rule names
    a function     it is called; only ``True`` allows              it is called; only ``True`` allows
    "queue"        in the queue, waiting                           in the queue, waiting
    "never"        refused                                         refused
    None           in the queue; refused now, and the answer       in the queue if a page or a terminal listens to it;
                   holds for the next time                         else refused

A function is called in the thread that runs the command. If it fails, or returns anything but ``True``, it refuses.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.core.approval.approval import CommandAnswer, CommandApprover, CommandQuestion
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.core.network.upload_host import upload_note
from mudroom.errors import UsageError
from mudroom.library.value import Question
from mudroom.sandbox.client.connection import wait_readable
from mudroom.session import Session
from mudroom.session.project_session import QueueForHosts, remember_command
from mudroom.typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from mudroom.sandbox.client.cancellation import Cancellation

    Ask: TypeAlias = Callable[[Question], bool] | Literal["queue", "never"]
    IsOver: TypeAlias = Callable[[], bool]
    """Whether the answer is no longer needed."""

_BY = "the program"


def set_approvers(session: Session, ask: Ask | None) -> None:
    """Set the approvers for background commands and for hosts."""
    if ask is not None and not callable(ask) and ask not in ("queue", "never"):
        hint = 'write a function of a question that returns True or False, "queue" or "never"'
        raise UsageError(f"ask is {ask!r}", hint)
    session.approval.ask_about(
        command_approver(session, ask), lambda rule, allow: remember_command(session, rule, allow)
    )
    if callable(ask):
        function = ask
        session.machine.ask_about_hosts(lambda question, over: _host_answer(function, session, question, over))
    elif ask != "never":
        session.machine.ask_about_hosts(QueueForHosts(session, anyway=ask == "queue"))


def command_approver(
    session: Session, ask: Ask | None, cancellation: Cancellation | None = None
) -> CommandApprover | None:
    """Return the approver for a command, which waits at most until the cancellation. None: the command is refused."""
    if ask == "never":
        return None
    if callable(ask):
        function = ask

        def is_over() -> bool:
            return cancellation is not None and cancellation.is_set

        return lambda question: CommandAnswer(_asked(function, _of_command(question), is_over) is True, by=_BY)

    def in_the_queue(question: CommandQuestion) -> CommandAnswer:
        from mudroom.vault.approvals.approver import QueueApprover

        patience = session.actor.settings.approval_timeout if ask == "queue" else 0
        over = cancellation.fileno() if cancellation is not None and patience else -1
        return QueueApprover(session.vault.approvals, patience, over)(question)

    return in_the_queue


def _asked(ask: Callable[[Question], bool], question: Question, is_over: IsOver) -> bool:
    with_end: Callable[[Question, IsOver], bool] | None = getattr(ask, "ask_until", None)
    return ask(question) if with_end is None else with_end(question, is_over)


def _of_command(question: CommandQuestion) -> Question:
    words = tuple(map(os.fsdecode, question.command))
    cwd, verdict = os.fsdecode(question.cwd), question.verdict
    return Question("command", question.fork, question.agent, words, cwd, "", 0, f"{verdict.reason} ({verdict.rule})")


def _host_answer(ask: Callable[[Question], bool], session: Session, question: FlowQuestion, over: int) -> FlowAnswer:
    agent = session.actor.agent or ""
    note = upload_note(question.host)
    reason = f"no rule names this host; {note}" if note else "no rule names this host"
    asked = Question("host", question.fork, agent, (), "", question.host, question.port, reason)
    try:
        allowed = _asked(ask, asked, lambda: bool(wait_readable((over,), 0.0)))
    except Exception as error:  # noqa: BLE001 - a failure of the caller's code must not open a host
        return FlowAnswer(False, why=f"the function that was asked failed: {type(error).__name__}: {error}")
    return FlowAnswer(True) if allowed is True else FlowAnswer(False, why=f"refused by {_BY}")
