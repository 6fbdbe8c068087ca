"""The gate's questions about hosts for one command, and the rules that their answers make.

Rules in this file:
1. The approver is asked once per command about a host and port, whatever the answer.
2. An approver on the user's terminal blocks, and the command's output is held back. An approver elsewhere
   (``RemoteApprover``) does not block: the command and its timeout continue, and it still pauses for the user's
   commands. While the command's program reads keys from the user's terminal, the terminal belongs to the program:
   questions are asked elsewhere, and a sign on the terminal says so (``CommandScreen``).
3. If no approver can receive a question, the connection is refused at once. A later connection is asked about if an
   approver is available by then.
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.core.network.host_entry import expand, offered_rule
from mudroom.core.network.host_rules import ASKED, LATER, HostRule, concerns, show_rule
from mudroom.core.network.preset import offers
from mudroom.errors import MudroomError
from mudroom.net.gate_handle import GuardHandle
from mudroom.typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Running
    from mudroom.session.confinement.host_approver import (
        Approver,
        CommandScreen,
        PendingQuestion,
        RemoteApprover,
        TerminalApprover,
    )


class HostQuestions:
    """Owner: the thread that attends to the command."""

    def __init__(
        self,
        approver: Callable[[], Approver | None],
        remember: Callable[[HostRule], None],
        screen: CommandScreen,
        renew: Callable[[GuardHandle], object],
        note: Callable[[str], None],
    ) -> None:
        """``approver``: returns the present approver. ``remember`` stores a lasting answer. ``renew`` sends the guard
        its rules again, including the answers' rules. ``note`` adds a note to the command's result."""
        self._approver, self._remember, self._screen = approver, remember, screen
        self._renew, self._note = renew, note
        self.rules: list[HostRule] = []
        """The answers' rules, valid for this command only."""
        self.later: list[HostRule] = []
        """Rules that do not count for this command, though they are remembered: it may go on unheld."""
        self._waiting: list[tuple[FlowQuestion, PendingQuestion]] = []

    def descriptors(self) -> list[int]:
        return [bell for _question, waiting in self._waiting if (bell := waiting.fileno()) >= 0]

    def ask(self, guard: GuardHandle, question: FlowQuestion, running: Running | None) -> None:
        """Answer the gate, or let the question wait. ``running``: the command; None once it has ended."""
        approver, screen = self._approver(), self._screen
        if approver is None or running is None or running.has_report():
            self._settle(guard, question, FlowAnswer(False))
            return
        answer: FlowAnswer | None = None
        if hasattr(approver, "elsewhere"):
            at_terminal = cast("TerminalApprover", approver)
            if not screen.is_taken():
                with screen.suspended():
                    answer = at_terminal.ask(question, running.over, screen.is_taken)
            approver = at_terminal.elsewhere
        elif not hasattr(approver, "begin"):
            with screen.suspended():
                answer = approver(question, running.over)
        if answer is not None:
            self._settle(guard, question, answer)
            return
        self._waiting.append((question, cast("RemoteApprover", approver).begin(question)))
        self.look(guard)  # it may have been answered or refused already
        self._show_sign()

    def _show_sign(self) -> None:
        """Show on the user's terminal how many questions wait elsewhere."""
        hosts = [question.host for question, _waiting in self._waiting]
        number = f"{len(hosts)} questions wait"
        self._screen.sign(
            "" if not hosts else f"mudroom: {number if hosts[1:] else f'allow {hosts[0]}?'} (mudroom approve)"
        )

    def look(self, guard: GuardHandle) -> None:
        """Pass answers that were given elsewhere to the gate."""
        for question, waiting in list(self._waiting):
            answer = waiting.look()
            if answer is not None:
                self._waiting.remove((question, waiting))
                waiting.close()
                self._settle(guard, question, answer)
                self._show_sign()

    def _settle(self, guard: GuardHandle, question: FlowQuestion, answer: FlowAnswer) -> None:
        if not answer.lasting:
            guard.refuse(question.identity, answer.why)
            return
        rule = HostRule("allow" if answer.allowed else "deny", question.host, (question.port,), source=ASKED)
        kept = rule
        if answer.rule:
            kept = self._offered(guard, question, answer)
            rule = rule._replace(source=f"{ASKED} {show_rule(kept)}" if answer.allowed else LATER)
        self.rules.append(rule._replace(source=f"{ASKED}, {answer.why}") if answer.why else rule)
        guard.answer(question.identity, answer.allowed, self.rules[-1])
        if answer.keep:
            try:
                self._remember(kept)
            except MudroomError as error:  # the answer is valid for this command
                self._note(f"the answer about {question.host} could not be kept: {error}")

    def _offered(self, guard: GuardHandle, question: FlowQuestion, answer: FlowAnswer) -> HostRule:
        """Return the rule to be remembered: one that the question offered. It holds for this command, too, and closes
        waiting questions about its hosts, unless it is for later commands."""
        offered = offers(question.host, question.port, question.hold)
        if not any((offer.rule, offer.allows) == (answer.rule, answer.allowed) for offer in offered):
            raise MudroomError(f"the answer about {question.host} names a rule that was not offered: {answer.rule}")
        kept = offered_rule(answer.rule)
        if kept.hold and question.hold == "later":
            if answer.allowed:
                self.later.append(kept)
            return kept
        hosts = list(expand([kept]))
        self.rules += hosts
        self._renew(guard)
        for asked, waiting in list(self._waiting):
            if any(concerns(rule, asked.host, asked.port) for rule in hosts):
                self._waiting.remove((asked, waiting))
                waiting.close()
        return kept

    def close(self) -> None:
        while self._waiting:
            self._waiting.pop()[1].close()
