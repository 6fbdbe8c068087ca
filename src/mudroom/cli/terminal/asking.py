"""Asking the user, while a command waits: "Allow registry.example?" (Whether it may run at all:
``command_approver.py``.)

The terminal is the user's own for that moment (``Relay.suspended``): nothing that the command writes appears, and the
command cannot type the answer. What is shown of it is a canonical host name, and a port.

It is asked in the queue at the same time, where a page or another terminal may answer: the first answer counts.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mudroom.core.approval_queue import QueueDecision
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError

if TYPE_CHECKING:
    from mudroom.cli.terminal.terminal import Terminal
    from mudroom.core.approval_queue import State
    from mudroom.session.upkeep import Queue, Ticket

PATIENCE = 55.0
"""Seconds. A little less than the gate waits: the one who answers is the one who decides."""
ANSWERS = {
    "o": FlowAnswer(True),
    "a": FlowAnswer(True, keep=True),
    "n": FlowAnswer(False),
    "N": FlowAnswer(False, keep=True),
}
_LOOK = 2.0
"""Seconds after which it is seen that somebody has answered elsewhere, without being woken."""
CHOICES = "[o]nce  [a]lways for this project  [n]o  [N]ever"


PLACES = {"page": "on the page", "follow": "where mudroom approve --follow runs"}
"""Who else may answer (``vault/approvals/bell.py``), for people."""


def by_terminal(terminal: Terminal, question: FlowQuestion, over: int) -> FlowAnswer:
    """On this terminal alone. ``over``: readable as soon as the command has ended."""
    pressed = _pressed(terminal, question, over)
    if isinstance(pressed, FlowAnswer):
        return pressed
    _no_answer(terminal, question)
    return FlowAnswer(False)


def first_of(terminal: Terminal, queue: Queue, agent: str, question: FlowQuestion, over: int) -> FlowAnswer:
    """Here and in the queue at once: the other is told how it has ended. If the queue cannot be used it is asked here
    alone; if it fails later, nothing is allowed."""
    from mudroom.session.upkeep import failed, host_question

    try:
        ticket = queue.put(host_question(question, agent), PATIENCE)
    except MudroomError as error:
        terminal.note(f"asked on this terminal only: {error}")
        return by_terminal(terminal, question, over)
    try:
        with ticket:
            return _first(terminal, queue, question, over, ticket)
    except MudroomError as error:
        terminal.note(f"{_shown(question)} is refused to this command: {error}")
        return failed(error)


def also(queue: Queue) -> str:
    """Where else is asked, if somebody is there: for people."""
    return " and ".join(PLACES.get(who, who) for who in sorted(queue.listeners()))


def _first(terminal: Terminal, queue: Queue, question: FlowQuestion, over: int, ticket: Ticket) -> FlowAnswer:
    from mudroom.session.upkeep import host_answer

    try:
        pressed = ticket.look() or _pressed(terminal, question, over, ticket, also(queue))
    except KeyboardInterrupt:
        ticket.end("withdrawn", "interrupted")
        raise
    ours, decision = False, pressed
    if isinstance(pressed, FlowAnswer):
        state: State = "allowed" if pressed.allowed else "denied"
        decision, ours = ticket.end(state, "", "terminal", pressed.keep)
    elif isinstance(pressed, str):
        decision, ours = ticket.end("expired" if pressed == _LATE else "withdrawn", pressed)
    assert isinstance(decision, QueueDecision)
    if not ours:
        terminal.say(f"{_shown(question)}: {heard(decision)}")
    elif isinstance(pressed, str):
        _no_answer(terminal, question)
    return host_answer(decision)


_LATE = f"nobody has answered in {PATIENCE:g} s"


def _pressed(
    terminal: Terminal, question: FlowQuestion, over: int, ticket: Ticket | None = None, elsewhere: str = ""
) -> FlowAnswer | QueueDecision | str:
    """What is pressed here, or was decided elsewhere before; or why there is neither. Raises MudroomError."""
    until = time.monotonic() + PATIENCE
    with interrupts() as interrupted:
        if not forget_typed(0):
            return "the terminal has gone"
        terminal.begin_line()
        terminal.say(terminal.style(f"Allow {_shown(question)}?", "bold") + f"  {CHOICES}")
        if elsewhere:
            terminal.say(terminal.style(f"also asked {elsewhere}", "dim"))
        woken = [ticket.fileno()] if ticket is not None and ticket.fileno() >= 0 else []
        while (left := until - time.monotonic()) > 0:
            ready = ready_of((0, interrupted, over, *woken), min(left, _LOOK))
            decision = ticket.look() if ticket is not None else None
            if decision is not None:
                return decision
            if interrupted in ready or over in ready:
                return "interrupted" if interrupted in ready else "the command has ended"
            if 0 in ready:
                return ANSWERS.get(
                    os.read(0, 4096).decode("utf-8", "replace").strip()[:1], "what was typed is no answer"
                )
    return _LATE


def _no_answer(terminal: Terminal, question: FlowQuestion) -> None:
    terminal.say(f"no answer: {_shown(question)} is refused to this command")


def _shown(question: FlowQuestion) -> str:
    return question.host if question.port in (80, 443) else f"{question.host}:{question.port}"


def heard(decision: QueueDecision) -> str:
    why = f": {text(decision.reason)}" if decision.reason else ""
    return f"{decision.state} by {text(decision.by)}{why}"


def text(one: str) -> str:
    return show(one.encode("utf-8", "surrogatepass"))


def forget_typed(descriptor: int) -> bool:
    """What was typed before the question is no answer to it. False if the terminal has gone."""
    try:
        termios.tcflush(descriptor, termios.TCIFLUSH)
    except termios.error:
        return False
    return True


@contextmanager
def interrupts() -> Iterator[int]:
    """A descriptor that is readable after Ctrl-C, which is the command's as well: whoever heeded it before still
    does."""
    wake, word = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        os.write(word, b"c")
        if callable(before):
            before(number, frame)  # type: ignore[arg-type]

    try:
        try:
            signal.signal(signal.SIGINT, interrupted)
        except ValueError:  # not in the main thread: signals are somebody else's business
            yield wake
            return
        try:
            yield wake
        finally:
            signal.signal(signal.SIGINT, before)
    finally:
        os.close(wake)
        os.close(word)


def ready_of(descriptors: Sequence[int], seconds: float) -> set[int]:
    poller = select.poll()
    for one in descriptors:
        poller.register(one, select.POLLIN)
    return {one for one, _events in poller.poll(max(0, int(seconds * 1000) + 1))}
