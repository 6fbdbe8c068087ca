"""Ask the user whether a command may run, on this terminal and in the queue at the same time.

The question shows the command's words, without characters that a terminal would obey. The command has not started, and
input typed before the question is discarded. A question that ends without an answer refuses.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.cli.terminal.asking import (
    ENTER,
    NoAnswer,
    QueuedQuestion,
    describe_decision,
    elsewhere_text,
    interrupts,
    legend,
    read_answer,
)
from mudroom.core.approval.approval import (
    CommandAnswer,
    CommandApprover,
    CommandQuestion,
    can_be_kept,
    hour_of,
    rule_of,
)
from mudroom.core.approval.shown_question import shown_question
from mudroom.core.approval_queue import QueueDecision, QueuedQuestionRecord, answer_of
from mudroom.core.tree.path import show, show_text
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.cli.terminal.terminal import Terminal
    from mudroom.session.upkeep import Queue, Ticket

PATIENCE = 300.0
"""Seconds for an answer. It may be long: only the agent waits."""
Keys = Mapping[str, CommandAnswer | NoAnswer]
_ONCE, _ALWAYS = CommandAnswer(True, by="terminal"), CommandAnswer(True, keep=True, by="terminal")
_HOUR = CommandAnswer(True, by="terminal", hour=True)
_NO, _NEVER = CommandAnswer(False, by="terminal"), CommandAnswer(False, keep=True, by="terminal")
HOUR = {"h": _HOUR, "hour": _HOUR}
"""For a question in the queue, which keeps the answer."""
KEYS = {"o": _ONCE, "once": _ONCE, "a": _ALWAYS, "always": _ALWAYS, "n": _NO, "no": _NO, "N": _NEVER, "never": _NEVER}
"""Answers by whole line: a line that only begins with a key is not an answer."""


# --- approvers ---


def by_queue(terminal: Terminal, queue: Queue, patience: float = PATIENCE, *, quiet: bool = False) -> CommandApprover:
    """Return an approver that waits for an answer in the queue. Ctrl-C ends the wait, whatever other handler runs. With
    ``patience`` 0 it does not wait: the answer is for the next time. ``quiet`` suppresses messages."""

    def announce(name: str) -> None:
        if not quiet:
            terminal.say(f"waiting for approval {name}: mudroom approve {name}")

    def approve(question: CommandQuestion) -> CommandAnswer:
        from mudroom.session.upkeep import QueueApprover

        with interrupts() as interrupted:
            return QueueApprover(queue, patience, interrupted, announce)(question)

    return approve


def by_terminal(terminal: Terminal, patience: float = PATIENCE) -> CommandApprover:
    """Return an approver that asks only on this terminal."""

    def approve(question: CommandQuestion) -> CommandAnswer:
        pressed = ask_here(
            terminal,
            describe_question(question),
            choices(question, in_queue=False),
            keys_of(question, in_queue=False),
            patience,
        )
        return pressed if isinstance(pressed, CommandAnswer) else _print_no_answer(terminal, pressed)

    return approve


def first_of(terminal: Terminal, queue: Queue, patience: float = PATIENCE) -> CommandApprover:
    """Return an approver that asks here and in the queue at once. The first answer counts, and is printed here. If the
    queue cannot be used, it asks only here and says so. If the queue fails later, it raises MudroomError, and the
    command is not allowed."""

    def approve(question: CommandQuestion) -> CommandAnswer:
        try:
            ticket = queue.put(question, patience)
        except MudroomError as error:
            terminal.note(f"asked on this terminal only: {error}")
            return by_terminal(terminal, patience)(question)
        with ticket:
            return _ask_both(terminal, queue, question, patience, ticket)

    return approve


def _ask_both(
    terminal: Terminal, queue: Queue, question: CommandQuestion, patience: float, ticket: Ticket
) -> CommandAnswer:
    decision = ticket.look()
    if decision is not None:  # decided while this process did not wait
        return _print_decision(terminal, decision)
    try:
        pressed = ask_here(
            terminal,
            _question_lines(question, ticket, queue),
            choices(question, in_queue=True),
            keys_of(question, in_queue=True),
            patience,
            ticket,
        )
    except KeyboardInterrupt:
        ticket.end("withdrawn", "interrupted")
        raise
    if isinstance(pressed, QueueDecision):
        return _print_decision(terminal, pressed)
    if isinstance(pressed, CommandAnswer):
        decision, ours = ticket.end(
            "allowed" if pressed.allow else "denied", "", "terminal", pressed.keep, hour=pressed.hour
        )
        return pressed if ours else _print_decision(terminal, decision)
    decision, ours = ticket.end(pressed.state, pressed.reason)
    return _print_no_answer(terminal, pressed) if ours else _print_decision(terminal, decision)


def _print_no_answer(terminal: Terminal, ended: NoAnswer | QueueDecision) -> CommandAnswer:
    terminal.say(f"no answer, so the command does not run: {ended.reason}")
    return CommandAnswer(False, by="nobody", reason=ended.reason)


def _print_decision(terminal: Terminal, decision: QueueDecision) -> CommandAnswer:
    terminal.say(describe_decision(decision))
    return answer_of(decision)


# --- question text ---


def _question_lines(question: CommandQuestion, ticket: Ticket, queue: Queue) -> list[str]:
    elsewhere = elsewhere_text(queue)
    return [*describe_question(question, ticket.asked), *([f"  also asked {elsewhere}"] if elsewhere else [])]


def describe_question(question: CommandQuestion, asked: QueuedQuestionRecord | None = None) -> list[str]:
    """Return the question as lines for a terminal."""
    question = shown_question(question)
    place = f"in the fork {show_text(question.fork)}" if question.fork else "in a new fork"
    head = f"{show_text(question.agent)} wants to run, {place}" if question.agent else f"To run {place}"
    verdict = question.verdict
    lines = [
        f"{head}:",
        "  " + show_words(question.command),
        f"  in {show(question.cwd)}",
        f"  {', '.join(verdict.classes)}: {show_text(verdict.reason)} ({show_text(verdict.rule)})",
    ]
    if question.terms:
        lines.append(f"  {terms(question)}")
    if question.files:
        names = [show(path) for path, _digest in question.files[:5]]
        more = f" and {len(question.files) - 5} more" if len(question.files) > 5 else ""
        lines.append(f"  for {', '.join(names)}{more} as of now")
    if asked is not None:
        lines += [f"  asked anew: {show_text(asked.note)}"] if asked.note else []
        lines += [f"  hour: {hour}"] if (hour := hour_of(question)) else []
    if can_be_kept(question):
        lines += [f"  {word}: {rule_of(question, word == 'always')}" for word in ("always", "never")]
    return lines


def terms(question: CommandQuestion) -> str:
    """Return the terms under which the command would run, as a line."""
    return ", ".join(map(show_text, question.terms))


def choices(question: CommandQuestion, *, in_queue: bool) -> str:
    first = "[o]nce  [h]our" if in_queue and hour_of(question) else "[o]nce"
    return f"{first}  [a]lways  [n]o  [N]ever" if can_be_kept(question) else f"{first}  [n]o"


def keys_of(question: CommandQuestion, *, in_queue: bool) -> Keys:
    keys = {**KEYS, **(HOUR if in_queue and hour_of(question) else {})}
    return {key: answer for key, answer in keys.items() if can_be_kept(question) or not answer.keep}


# --- asking ---


def ask_here(
    terminal: Terminal, lines: list[str], choice: str, keys: Keys, patience: float, queued: QueuedQuestion | None = None
) -> CommandAnswer | QueueDecision | NoAnswer:
    """Return the answer as ``read_answer`` does."""
    shown = [f"{terminal.style(choice, 'bold')}  {ENTER}"]
    return read_answer(terminal, lines, shown, keys.get, legend(keys), patience, queued)
