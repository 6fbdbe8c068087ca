"""Asking the user whether a command may run, on this terminal, and in the queue at the same time.

What is shown are the words of the command, with nothing in them that a terminal would obey. The command has not begun,
and what was typed before the question is no answer. Whatever ends the question without an answer refuses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mudroom.cli.terminal.asking import also, forget_typed, heard, interrupts, ready_of, text
from mudroom.core.approval.approval import CommandAnswer, CommandApprover, CommandQuestion, can_be_kept
from mudroom.core.approval_queue import QueueDecision, QueuedQuestionRecord, State, answer_of
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError

if TYPE_CHECKING:
    from mudroom.cli.terminal.terminal import Terminal
    from mudroom.session.upkeep import Queue, Ticket

PATIENCE = 300.0
"""Seconds for an answer: nothing is held up but the agent."""
_LOOK = 2.0
"""Seconds after which it is seen that somebody has answered elsewhere, without being woken."""


def _never() -> QueueDecision | None:
    return None


class QueuedQuestion(Protocol):
    """A question in the queue, which may be answered elsewhere while it is asked here: a ``Ticket``, for one."""

    def fileno(self) -> int: ...
    def look(self) -> QueueDecision | None: ...


class NoAnswer(NamedTuple):
    """No answer was given here."""

    state: State
    reason: str


Keys = Mapping[str, CommandAnswer | NoAnswer]
_ONCE, _ALWAYS = CommandAnswer(True, by="terminal"), CommandAnswer(True, keep=True, by="terminal")
_NO, _NEVER = CommandAnswer(False, by="terminal"), CommandAnswer(False, keep=True, by="terminal")
KEYS = {"o": _ONCE, "once": _ONCE, "a": _ALWAYS, "always": _ALWAYS, "n": _NO, "no": _NO, "N": _NEVER, "never": _NEVER}
"""Whole lines: what only begins like an answer is none."""


# --- approvers ---


def by_queue(terminal: Terminal, queue: Queue, patience: float = PATIENCE, *, quiet: bool = False) -> CommandApprover:
    """Waits for an answer in the queue; Ctrl-C ends that, whoever else heeds it. With a patience of 0 it does not wait:
    the answer is for the next time. ``quiet``: nothing is said on the terminal."""

    def waiting(name: str) -> None:
        if not quiet:
            terminal.say(f"waiting for approval {name}: mudroom approve {name}")

    def approve(question: CommandQuestion) -> CommandAnswer:
        from mudroom.session.upkeep import QueueApprover

        with interrupts() as interrupted:
            return QueueApprover(queue, patience, interrupted, waiting)(question)

    return approve


def by_terminal(terminal: Terminal, patience: float = PATIENCE) -> CommandApprover:
    """Asks on this terminal alone."""

    def approve(question: CommandQuestion) -> CommandAnswer:
        pressed = ask(terminal, told(question), choices(question), keys_of(question), patience)
        return pressed if isinstance(pressed, CommandAnswer) else _none(terminal, pressed)

    return approve


def first_of(terminal: Terminal, queue: Queue, patience: float = PATIENCE) -> CommandApprover:
    """Asks here and in the queue at once: the first answer counts, and is told here. If the queue cannot be used it
    asks here alone, and says so; if it fails later, it raises MudroomError: nothing is allowed then."""

    def approve(question: CommandQuestion) -> CommandAnswer:
        try:
            ticket = queue.put(question, patience)
        except MudroomError as error:
            terminal.note(f"asked on this terminal only: {error}")
            return by_terminal(terminal, patience)(question)
        with ticket:
            return _both(terminal, queue, question, patience, ticket)

    return approve


def _both(
    terminal: Terminal, queue: Queue, question: CommandQuestion, patience: float, ticket: Ticket
) -> CommandAnswer:
    decision = ticket.look()
    if decision is not None:  # it was given when nobody waited
        return _heard(terminal, decision)
    try:
        pressed = ask(terminal, _told(question, ticket, queue), choices(question), keys_of(question), patience, ticket)
    except KeyboardInterrupt:
        ticket.end("withdrawn", "interrupted")
        raise
    if isinstance(pressed, QueueDecision):
        return _heard(terminal, pressed)
    if isinstance(pressed, CommandAnswer):
        decision, ours = ticket.end("allowed" if pressed.allow else "denied", "", "terminal", pressed.keep)
        return pressed if ours else _heard(terminal, decision)
    decision, ours = ticket.end(pressed.state, pressed.reason)
    return _none(terminal, pressed) if ours else _heard(terminal, decision)


def _none(terminal: Terminal, ended: NoAnswer | QueueDecision) -> CommandAnswer:
    terminal.say(f"no answer, so the command does not run: {ended.reason}")
    return CommandAnswer(False, by="nobody", reason=ended.reason)


def _heard(terminal: Terminal, decision: QueueDecision) -> CommandAnswer:
    terminal.say(heard(decision))
    return answer_of(decision)


# --- what is shown ---


def _told(question: CommandQuestion, ticket: Ticket, queue: Queue) -> list[str]:
    elsewhere = also(queue)
    return [*told(question, ticket.asked), *([f"  also asked {elsewhere}"] if elsewhere else [])]


def told(question: CommandQuestion, asked: QueuedQuestionRecord | None = None) -> list[str]:
    """What is asked, in lines for a terminal."""
    from mudroom.core.tree.quote import show_words

    place = f"in the fork {text(question.fork)}" if question.fork else "in a new fork"
    head = f"{text(question.agent)} wants to run, {place}" if question.agent else f"To run {place}"
    verdict = question.verdict
    lines = [
        f"{head}:",
        "  " + show_words(question.command),
        f"  in {show(question.cwd)}",
        f"  {', '.join(verdict.classes)}: {text(verdict.reason)} ({text(verdict.rule)})",
    ]
    if question.terms:
        lines.append(f"  {terms(question)}")
    if question.files:
        names = [show(path) for path, _digest in question.files[:5]]
        more = f" and {len(question.files) - 5} more" if len(question.files) > 5 else ""
        lines.append(f"  for {', '.join(names)}{more} as of now")
    if asked is not None and asked.note:
        lines.append(f"  asked anew: {text(asked.note)}")
    return lines


def terms(question: CommandQuestion) -> str:
    """On which it would run, in a line."""
    return ", ".join(map(text, question.terms))


def choices(question: CommandQuestion) -> str:
    if not can_be_kept(question):
        return "[o]nce  [n]o"
    return f"[o]nce  [a]lways: {question.pattern}  [n]o  [N]ever"


def keys_of(question: CommandQuestion) -> Keys:
    return {key: answer for key, answer in KEYS.items() if can_be_kept(question) or not answer.keep}


# --- asking ---


def ask(
    terminal: Terminal,
    lines: list[str],
    choice: str,
    keys: Keys,
    patience: float,
    elsewhere: QueuedQuestion | None = None,
) -> CommandAnswer | QueueDecision | NoAnswer:
    """What is pressed here, or was decided elsewhere before. Raises what ``elsewhere`` does."""
    until = time.monotonic() + patience
    with interrupts() as interrupted:
        if not forget_typed(0):
            return NoAnswer("withdrawn", "the terminal has gone")
        terminal.begin_line()
        for line in lines:
            terminal.say(line)
        terminal.say(terminal.style(choice, "bold"))
        looked = elsewhere.look if elsewhere is not None else _never
        woken = [elsewhere.fileno()] if elsewhere is not None and elsewhere.fileno() >= 0 else []
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return NoAnswer("expired", f"nobody has answered in {patience:g} s")
            ready = ready_of((0, interrupted, *woken), min(left, _LOOK))
            decision = looked()
            if decision is not None:
                return decision
            if interrupted in ready:
                return NoAnswer("withdrawn", "interrupted")
            if 0 in ready:
                typed = os.read(0, 4096)
                key = typed.decode("utf-8", "replace").strip()
                if key in keys:
                    return keys[key]
                if not typed:
                    return NoAnswer("withdrawn", "the terminal has gone")
                terminal.say(terminal.style(choice, "bold"))
