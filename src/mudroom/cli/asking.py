"""Asking the user, while a command waits: "Allow registry.example?" (Whether it may run at all: ``approving.py``.)

The terminal is the user's own for that moment (``Relay.hushed``): nothing that the command writes appears, and the
command cannot type the answer. What is shown of it is a canonical host name, and a port.
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

from mudroom.core.flow import Answer, Question

if TYPE_CHECKING:
    from mudroom.cli.terminal import Terminal

PATIENCE = 55.0
"""Seconds. A little less than the gate waits: the one who answers is the one who decides."""
ANSWERS = {
    "o": Answer(True),
    "a": Answer(True, keep=True),
    "n": Answer(False),
    "N": Answer(False, keep=True),
}
CHOICES = "[o]nce  [a]lways for this project  [n]o  [N]ever"


def by_terminal(terminal: Terminal, question: Question, over: int) -> Answer:
    """``over``: readable as soon as the command has ended."""
    host = question.host if question.port in (80, 443) else f"{question.host}:{question.port}"
    with interrupts() as interrupted:
        if not forget_typed(0):
            return Answer(False)
        terminal.begin_line()
        terminal.say(terminal.style(f"Allow {host}?", "bold") + f"  {CHOICES}")
        answer = ANSWERS.get(_line(0, (interrupted, over), time.monotonic() + PATIENCE))
    if answer is None:
        terminal.say(f"no answer: {host} is refused to this command")
    return answer or Answer(False)


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


def _line(descriptor: int, others: Sequence[int], deadline: float) -> str:
    """The first letter of a line; empty when the time is over, at the end of the input, and when one of ``others`` is
    readable first."""
    ready = ready_of((descriptor, *others), deadline - time.monotonic())
    if descriptor not in ready or any(one in ready for one in others):
        return ""
    return os.read(descriptor, 4096).decode("utf-8", "replace").strip()[:1]
