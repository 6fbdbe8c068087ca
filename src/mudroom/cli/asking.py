"""Asking the user, while a command waits: "Allow registry.example?"

The terminal is the user's own for that moment (``Relay.hushed``): nothing that the command writes appears, and the
command cannot type the answer. What is shown of it is a canonical host name, and a port.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import time
from typing import TYPE_CHECKING

from mudroom.core.flow import Answer, Question

if TYPE_CHECKING:
    from mudroom.cli.terminal import Terminal

PATIENCE = 55.0
"""Seconds. A little less than the gate waits: the one who answers is the one who decides."""
_ANSWERS = {
    "o": Answer(True),
    "a": Answer(True, keep=True),
    "n": Answer(False),
    "N": Answer(False, keep=True),
}
_CHOICES = "[o]nce  [a]lways for this project  [n]o  [N]ever"


def by_terminal(terminal: Terminal, question: Question) -> Answer:
    port = "" if question.port in (80, 443) else f":{question.port}"
    terminal.begin_line()
    terminal.say(terminal.style(f"Allow {question.host}{port}?", "bold") + f"  {_CHOICES}")
    answer = _ANSWERS.get(_line(0, time.monotonic() + PATIENCE))
    if answer is None:
        terminal.say(f"no answer: {question.host}{port} is refused to this command")
    return answer or Answer(False)


def _line(descriptor: int, deadline: float) -> str:
    """The first letter of a line; empty when the time is over, at the end of the input and on Ctrl-C, which is the
    command's as well. What was typed before the question is no answer to it."""
    try:
        termios.tcflush(descriptor, termios.TCIFLUSH)
    except termios.error:
        return ""
    wake, word = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        os.write(word, b"c")
        if callable(before):
            before(number, frame)  # type: ignore[arg-type]

    try:
        signal.signal(signal.SIGINT, interrupted)
    except ValueError:
        pass  # not in the main thread: signals are somebody else's business
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.register(wake, select.POLLIN)
        ready = dict(poller.poll(max(0, int((deadline - time.monotonic()) * 1000))))
        if wake in ready or descriptor not in ready:
            return ""
        return os.read(descriptor, 4096).decode("utf-8", "replace").strip()[:1]
    finally:
        if before is not None:
            try:
                signal.signal(signal.SIGINT, before)
            except ValueError:
                pass
        os.close(wake)
        os.close(word)
