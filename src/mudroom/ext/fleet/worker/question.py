"""Questions about commands and hosts, which the user at the origin answers.

Rules of this file: no answer in time, an answer that cannot be read, a lease that has run out and a link that is gone
are denials. A denial without an answer about a host is not remembered: the next connection is asked about anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing

import msgspec

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.ext.fleet.wire.message import Answer, Ask
from mudroom.sandbox.client.connection import wait_readable

MOST_OPEN = 1_000
"""Questions that wait at the same time; further ones are denied."""
UNANSWERED = "the origin did not answer"


class OriginQuestion:
    """A question that waits. ``_lock`` guards the answer; the pipe is readable once there is one."""

    def __init__(self, number: int, forget: Callable[[int], None]) -> None:
        self.number = number
        self._forget = forget
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()
        self._answer: bytes | None = None

    def fileno(self) -> int:
        return self._read

    def settle(self, answer: bytes) -> None:
        """Give the answer; empty: there is none. The first one counts."""
        with self._lock:
            if self._answer is None and self._write >= 0:
                self._answer = answer
                os.write(self._write, b"\0")

    @property
    def answer(self) -> bytes | None:
        """The answer, or None: not yet."""
        with self._lock:
            return self._answer

    def close(self) -> None:
        self._forget(self.number)
        with self._lock:
            for descriptor in (self._read, self._write):
                if descriptor >= 0:
                    os.close(descriptor)
            self._read = self._write = -1


class OriginQuestions:
    """One link's questions. ``_lock`` guards all attributes."""

    def __init__(self, send: Callable[[int, Ask], None]) -> None:
        """``send``: sends a question on an errand's stream."""
        self._send = send
        self._lock = threading.Lock()
        self._open: dict[int, OriginQuestion] = {}
        self._last = 0
        self._is_closed = False

    def ask(self, stream: int, kind: str, question: bytes) -> OriginQuestion:
        with self._lock:
            self._last += 1
            pending = OriginQuestion(self._last, self._forget)
            denied = self._is_closed or len(self._open) >= MOST_OPEN
            if not denied:
                self._open[pending.number] = pending
        if denied:
            pending.settle(b"")
        else:
            self._send(stream, Ask(pending.number, kind, question))
        return pending

    def answer(self, answer: Answer) -> None:
        """Settle a question. An answer to a question that is not open is late, and ignored."""
        with self._lock:
            pending = self._open.get(answer.number)
        if pending is not None:
            pending.settle(answer.answer)

    def deny_all(self) -> None:
        """Settle the open questions without an answer."""
        with self._lock:
            waiting = list(self._open.values())
        for pending in waiting:
            pending.settle(b"")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self.deny_all()

    def _forget(self, number: int) -> None:
        with self._lock:
            self._open.pop(number, None)


def ask_about_command(
    questions: OriginQuestions, stream: int, question: CommandQuestion, timeout: float, cancelled: int
) -> CommandAnswer:
    """Ask the origin, and wait. ``cancelled``: a descriptor that is readable when the command is not wanted any
    more."""
    with closing(questions.ask(stream, "command", msgspec.msgpack.encode(question))) as pending:
        wait_readable([pending.fileno(), cancelled], time.monotonic() + timeout)
        answer = pending.answer
    if not answer:
        return CommandAnswer(False, by="nobody", reason=UNANSWERED)
    try:
        given = msgspec.msgpack.decode(answer, type=CommandAnswer)
    except msgspec.DecodeError:
        return CommandAnswer(False, by="nobody", reason="the origin's answer cannot be read")
    return given._replace(keep=False)  # a rule is kept at the origin, not here


class PendingHost:
    """A question about a host (the gate's ``PendingQuestion``). Owner: the command's thread."""

    def __init__(self, pending: OriginQuestion, until: float) -> None:
        self._pending, self._until = pending, until

    def fileno(self) -> int:
        return self._pending.fileno()

    def look(self) -> FlowAnswer | None:
        answer = self._pending.answer
        if answer is None:
            return FlowAnswer(False, why=UNANSWERED, lasting=False) if time.monotonic() >= self._until else None
        try:
            return msgspec.msgpack.decode(answer, type=FlowAnswer)._replace(keep=False)
        except msgspec.DecodeError:
            return FlowAnswer(False, why=UNANSWERED, lasting=False)

    def close(self) -> None:
        self._pending.close()


def ask_about_host(questions: OriginQuestions, stream: int, question: FlowQuestion, timeout: float) -> PendingHost:
    return PendingHost(questions.ask(stream, "host", msgspec.msgpack.encode(question)), time.monotonic() + timeout)


class OriginApprover:
    """Asks the origin about hosts (``RemoteApprover``)."""

    def __init__(self, begin: Callable[[FlowQuestion], PendingHost]) -> None:
        self.begin = begin
