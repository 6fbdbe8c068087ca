"""Ask the user about a host while a command waits: "Allow registry.example?" Questions about commands are in
``command_approver.py``.

Meanwhile the terminal is the user's alone (``Relay.suspended``): the command's output does not appear, and the command
cannot type the answer. The question shows a canonical host name and a port. If one of the command's programs takes the
terminal (``Relay.is_taken``), the question ends here and is asked elsewhere.

The question is also in the queue, where a page or another terminal may answer. The first answer counts.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager

from mudroom.core.approval.approval import HostQuestion, hour_of
from mudroom.core.approval_queue import QueueDecision, State
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.core.network.preset import offers
from mudroom.core.network.upload_host import upload_note
from mudroom.core.system.closing import Descriptor
from mudroom.core.text.answer_place import answered_by
from mudroom.core.tree.path import show, show_text
from mudroom.errors import MudroomError
from mudroom.sandbox.client.connection import wait_readable
from mudroom.typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from mudroom.cli.terminal.terminal import Terminal
    from mudroom.session.upkeep import Queue, Ticket

PATIENCE = 55.0
"""Seconds. Slightly less than the gate waits, so that this deadline decides."""
ANSWERS = {
    "o": FlowAnswer(True),
    "a": FlowAnswer(True, keep=True),
    "n": FlowAnswer(False),
    "N": FlowAnswer(False, keep=True),
}
"""Keys and answers. ``answers_to`` adds those of the rules that the question offers."""
_LOOK = 0.2
"""Seconds after which an answer elsewhere, or a program that takes the terminal, is noticed without a wake-up."""
CHOICES = "[o]nce  [a]lways for this project  [n]o  [N]ever"
ENTER = "then Enter"
_LEGEND = {
    "o": "o: allow it, this once",
    "h": "h: allow it in this fork for an hour",
    "a": "a: allow it from now on (a rule is written)",
    "n": "n: refuse it, this once",
    "N": "N: refuse it from now on (a rule is written)",
    "s": "s: decide later",
}
"""What the keys of every question mean, for the first wrong answer."""
GRACE = 5.0
"""Seconds for the command to end by Ctrl-C before its host is refused."""
SETTLE = 0.3
"""Seconds between a question and its keys. Keys typed before were meant for something else, and do not count."""


PLACES = {"page": "on the page", "follow": "where mudroom approve --follow runs"}
"""Other places that may answer (``vault/approvals/bell.py``), in words for the user."""


Answer = TypeVar("Answer")
IsTaken = Callable[[], bool]
"""Returns whether one of the command's programs reads keys from the terminal itself."""


def _never() -> bool:
    return False


def legend(keys: Container[str]) -> str:
    """Return what the keys of a question mean."""
    return "; ".join(words for key, words in _LEGEND.items() if key in keys)


def settle(descriptor: int, others: Sequence[int]) -> bool:
    """Wait until a question that is shown can have been read, or one of ``others`` is readable, and discard what was
    typed by then. Return False if the terminal is gone."""
    poll_readable(others, SETTLE)
    return forget_typed(descriptor)


def by_terminal(terminal: Terminal, question: FlowQuestion, over: int, is_taken: IsTaken = _never) -> FlowAnswer | None:
    """Ask on this terminal only. The descriptor ``over`` becomes readable when the command ends. Return None if the
    terminal was taken."""
    pressed = _read_host_answer(terminal, question, over, is_taken)
    if isinstance(pressed, FlowAnswer):
        return pressed
    if pressed.reason == _TAKEN:
        return None
    _refuse(terminal, question, pressed.reason, over)
    return FlowAnswer(False, why=f"and {pressed.reason}")


def first_of(
    terminal: Terminal, queue: Queue, agent: str, question: FlowQuestion, over: int, is_taken: IsTaken = _never
) -> FlowAnswer | None:
    """Ask here and in the queue at once; the other place is told the outcome. If the queue cannot be used, ask only
    here. If it fails later, refuse the host. Return None if the terminal was taken."""
    from mudroom.session.upkeep import failed, host_question

    try:
        ticket = queue.put(host_question(question, agent), PATIENCE)
    except MudroomError as error:
        terminal.note(f"asked on this terminal only: {error}")
        return by_terminal(terminal, question, over, is_taken)
    try:
        with ticket:
            return _ask_both(terminal, queue, question, over, ticket, is_taken)
    except MudroomError as error:
        terminal.note(f"{_host_text(question)} is refused to this command: {error}")
        return failed(error)


def elsewhere_text(queue: Queue) -> str:
    """Return the other places that show the question, in words for the user, or ""."""
    return " and ".join(PLACES.get(listener, listener) for listener in sorted(queue.listeners()))


def _ask_both(
    terminal: Terminal, queue: Queue, question: FlowQuestion, over: int, ticket: Ticket, is_taken: IsTaken
) -> FlowAnswer | None:
    from mudroom.session.upkeep import host_answer

    try:
        pressed = ticket.look() or _read_host_answer(terminal, question, over, is_taken, ticket, elsewhere_text(queue))
    except KeyboardInterrupt:
        ticket.end("withdrawn", _INTERRUPTED)
        raise
    ours, decision = False, pressed
    if isinstance(pressed, FlowAnswer):
        state: State = "allowed" if pressed.allowed else "denied"
        decision, ours = ticket.end(state, "", "terminal", pressed.keep, pressed.rule, hour=pressed.hour)
    elif isinstance(pressed, NoAnswer):
        decision, ours = ticket.end(*pressed)
        if pressed.reason == _TAKEN:
            return None if ours else host_answer(decision)
    assert isinstance(decision, QueueDecision)
    if not ours:
        terminal.say(f"{_host_text(question)}: {describe_decision(decision)}")
    elif isinstance(pressed, NoAnswer):
        _refuse(terminal, question, pressed.reason, over)
    return host_answer(decision)


_INTERRUPTED = "interrupted"
_TAKEN = "a program has the terminal"


def _read_host_answer(
    terminal: Terminal, question: FlowQuestion, over: int, is_taken: IsTaken, ticket: Ticket | None = None, at: str = ""
) -> FlowAnswer | QueueDecision | NoAnswer:
    note = upload_note(question.host)
    asked = ticket.asked.host if ticket is not None else None
    answers, choices, more = answers_to(asked or question)
    lines = [
        *([terminal.style(f"{question.host}: {note}", "dim")] if note else []),
        terminal.style(f"Allow {_host_text(question)}?", "bold"),
        *([terminal.style(f"also asked {at}", "dim")] if at else []),
    ]
    shown = _choice_lines(terminal, choices)
    meaning = f"{legend(answers)}{more}; {ENTER}"
    keys = (lambda typed: answers.get(typed[:1])), meaning
    return read_answer(terminal, lines, shown, *keys, PATIENCE, ticket, over=over, is_taken=is_taken, tries=2)


class QueuedQuestion(Protocol):
    """A question in the queue that may be answered elsewhere while it is asked here, e.g. a ``Ticket``."""

    def fileno(self) -> int: ...
    def look(self) -> QueueDecision | None: ...


class NoAnswer(NamedTuple):
    """The question ended here without an answer."""

    state: State
    reason: str


def read_answer(
    terminal: Terminal,
    lines: Sequence[str],
    choices: Sequence[str],
    answer_of: Callable[[str], Answer | None],
    meaning: str,
    patience: float,
    elsewhere: QueuedQuestion | None = None,
    *,
    over: int = -1,
    is_taken: IsTaken = _never,
    tries: int = 1_000_000,
) -> Answer | QueueDecision | NoAnswer:
    """Return the answer typed here, an earlier decision made elsewhere, or the reason why there is neither. Errors
    raised by ``elsewhere`` pass through.

    ``answer_of``: returns a typed line's answer, or None. ``meaning``: of the keys, said after a line that is none.
    ``over``: a descriptor that is readable when the command has ended; -1: it has not begun."""
    until = time.monotonic() + patience
    with interrupts() as interrupted:
        terminal.begin_line()
        _say(terminal, lines)
        ends = [descriptor for descriptor in (interrupted, over) if descriptor >= 0]
        if not settle(0, ends):
            return NoAnswer("withdrawn", "the terminal has gone")
        _say(terminal, choices)
        woken = [elsewhere.fileno()] if elsewhere is not None and elsewhere.fileno() >= 0 else []
        while (left := until - time.monotonic()) > 0:
            ready = poll_readable((0, *ends, *woken), min(left, _LOOK))
            decision = elsewhere.look() if elsewhere is not None else None
            if decision is not None:
                return decision
            if interrupted in ready or over in ready:
                return NoAnswer("withdrawn", _INTERRUPTED if interrupted in ready else "the command has ended")
            if is_taken():
                return NoAnswer("withdrawn", _TAKEN)
            if 0 in ready:
                typed = os.read(0, 4096)
                answer = answer_of(typed.decode("utf-8", "replace").strip())
                if answer is not None:
                    return answer
                tries -= 1
                if not tries or not typed or not forget_typed(0):
                    return NoAnswer("withdrawn", "what was typed is no answer" if typed else "the terminal has gone")
                terminal.say(f"{show(typed.strip()) or 'nothing'} is no answer. {meaning}")
                _say(terminal, choices)
    return NoAnswer("expired", f"nobody has answered in {patience:g} s")


def _say(terminal: Terminal, lines: Sequence[str]) -> None:
    for line in lines:
        terminal.say(line)


def answers_to(question: FlowQuestion | HostQuestion) -> tuple[dict[str, FlowAnswer], str, str]:
    """Return the answers by key for a question about a host, the keys as shown to the user, and the meaning of the keys
    for rules that this question offers. "For an hour" is offered for an agent's question in the queue: an agent comes
    back to its fork."""
    offered = offers(question.host, question.port, question.hold)
    answers = {offer.key: FlowAnswer(offer.allows, keep=True, rule=offer.rule) for offer in offered}
    shown = "".join(f"  [{offer.key}]{offer.label[1:]}" for offer in offered)
    more = "".join(f"; {offer.key}: {offer.words} ({offer.rule})" for offer in offered)
    choices = CHOICES + shown
    if isinstance(question, HostQuestion) and hour_of(question):
        answers["h"], choices = FlowAnswer(True, hour=True), choices.replace("  ", "  [h]our  ", 1)
    return ANSWERS | answers, choices, more


def _choice_lines(terminal: Terminal, choices: str) -> list[str]:
    """Return the keys of a question: one line, or on a narrow terminal one line for each key."""
    if len(choices) + len(ENTER) + 2 < terminal.columns(2):
        return [f"{choices}  {ENTER}"]
    return [*choices.split("  "), ENTER]


def _refuse(terminal: Terminal, question: FlowQuestion, why: str, over: int) -> None:
    terminal.say(f"no answer: {_host_text(question)} is refused to this command")
    if why == _INTERRUPTED:
        # Ctrl-C is for the command, too, and takes another way there than the refusal: a command that was refused
        # first could end by itself with 0, and the next one of a script begin.
        poll_readable((over,), GRACE)


def _host_text(question: FlowQuestion) -> str:
    return question.host if question.port in (80, 443) else f"{question.host}:{question.port}"


def describe_decision(decision: QueueDecision) -> str:
    why = f": {show_text(decision.reason)}" if decision.reason else ""
    return f"{decision.state}{answered_by(show_text(decision.by))}{why}"


def forget_typed(descriptor: int) -> bool:
    """Discard input typed before the question. Return False if the terminal is gone."""
    if sys.platform == "win32":
        from mudroom.core.registry import twin

        twin("console").forget_typed(descriptor)
        return True
    import termios

    try:
        termios.tcflush(descriptor, termios.TCIFLUSH)
    except termios.error:
        return False
    return True


@contextmanager
def interrupts() -> Iterator[int]:
    """Yield a descriptor that is readable after Ctrl-C. The previous handler still runs, because Ctrl-C is also for the
    command."""
    wake, word = os.pipe()
    for end in (wake, word):
        os.set_blocking(end, False)
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        os.write(word, b"c")
        if callable(before):
            before(number, frame)  # type: ignore[arg-type]

    with Descriptor(word), Descriptor(wake):
        try:
            signal.signal(signal.SIGINT, interrupted)
        except ValueError:  # not the main thread: signals are handled elsewhere
            yield wake
            return
        try:
            yield wake
        finally:
            signal.signal(signal.SIGINT, before)


def poll_readable(descriptors: Sequence[int], seconds: float) -> set[int]:
    return set(wait_readable(descriptors, time.monotonic() + max(0, seconds)))
