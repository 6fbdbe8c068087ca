"""Workers' questions in the origin's approval queue, where the page and ``mudroom approve`` answer them.

Rules of this file:
1. A question is a claim. The origin names the fork that it is shown with, by the worker's name; its fingerprint is the
   origin's own, so that it never uses up an answer that was given to another question.
2. "Always" about a command writes no rule, since the worker wrote the pattern. An answer about a host that is to be
   kept holds for all errands in this run.
3. A question waits as long as the policy says and is refused then. The queue holds ``MOST``, the others wait for their
   turn; a worker may have ``MOST_OF_WORKER``.
"""

from __future__ import annotations

import time
from _blake2 import blake2b
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion, HostQuestion
from mudroom.core.approval_queue import QueueDecision, answer_of
from mudroom.core.command.verdict import ACTIONS, CLASSES, Verdict
from mudroom.core.network.flow import FlowAnswer
from mudroom.core.network.host import parse_host
from mudroom.errors import MudroomError
from mudroom.ext.fleet.origin import claim
from mudroom.ext.fleet.origin.errand_log import ErrandRow
from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import ANSWER, Answer, Ask, frame_of
from mudroom.vault.approvals.approver import host_answer
from mudroom.vault.approvals.queue import Queue, Ticket

MOST = 100
MOST_OF_WORKER = 1_000
_WORDS = 4096
"""Words in a command."""


class _VerdictShape(NamedTuple):
    action: str
    classes: tuple[str, ...]
    rule: str
    reason: str
    instead: str


class _CommandShape(NamedTuple):
    """``CommandQuestion`` as it travels."""

    command: tuple[bytes, ...]
    cwd: bytes
    fork: str
    agent: str
    verdict: _VerdictShape
    pattern: str
    fingerprint: str
    files: tuple[tuple[bytes, str], ...] = ()
    terms: tuple[str, ...] = ()


class _HostShape(NamedTuple):
    """``FlowQuestion`` as it travels."""

    identity: int
    host: str
    port: int
    way: str
    fork: str = ""
    hold: str = ""


class _Waiting(NamedTuple):
    link: OriginLink
    stream: int
    number: int
    question: CommandQuestion | HostQuestion
    until: float


class QueuedQuestions:
    """Owner: the verb's thread."""

    def __init__(
        self,
        queue: Queue,
        timeout: float,
        announce: Callable[[str, str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``timeout``: seconds; 0: everything is refused. ``announce`` is called with the worker, the subject and the
        name of a question that was put into the queue."""
        self._queue, self._timeout, self._announce, self._clock = queue, timeout, announce, clock
        self._waiting: deque[_Waiting] = deque()
        self._queued: list[tuple[_Waiting, Ticket]] = []
        self._hosts: dict[tuple[str, int], FlowAnswer] = {}
        """Answers that hold for this run."""
        self._allowed: set[tuple[OriginLink, int, str, int]] = set()
        """Links, errands' streams, hosts and ports that were allowed."""

    def ask(self, node: str, errand: ErrandRow, link: OriginLink, stream: int, question: Ask) -> None:
        """Take a worker's question. Raise LinkError if it is none, or one too many."""
        if self._count_of(link) >= MOST_OF_WORKER:
            raise LinkError(f"asks more than {MOST_OF_WORKER:,} questions at one time")
        fork = f"{errand.label} on {node}"
        fingerprint = blake2b(digest_size=16)
        for part in (node, errand.errand, question.kind):
            fingerprint.update(part.encode("utf-8", "surrogatepass") + b"\0")
        fingerprint.update(question.question)
        asked = _question(question, fork, errand.message.agent, "fleet-" + fingerprint.hexdigest())
        self._waiting.append(_Waiting(link, stream, question.number, asked, self._clock() + self._timeout))

    def _count_of(self, link: OriginLink) -> int:
        waiting = [*self._waiting, *(row for row, _ticket in self._queued)]
        return sum(row.link is link for row in waiting)

    def poll(self) -> list[tuple[OriginLink, Frame]]:
        """Return the answers that were given since the last poll."""
        answers: list[tuple[_Waiting, CommandAnswer | FlowAnswer]] = []
        now = self._clock()
        still: list[tuple[_Waiting, Ticket]] = []
        for row, ticket in self._queued:
            answer = self._answered(row, ticket, now)
            if answer is None:
                still.append((row, ticket))
                continue
            ticket.close()
            answers.append((row, answer))
        self._queued = still
        while self._waiting and len(self._queued) < MOST:
            row = self._waiting.popleft()
            answer = self._known(row) or self._begin(row)
            if answer is not None:
                answers.append((row, answer))
        for row, answer in answers:
            if isinstance(answer, FlowAnswer) and answer.allowed and isinstance(row.question, HostQuestion):
                self._allowed.add((row.link, row.stream, row.question.host, row.question.port))
        return [(row.link, _frame(row, answer)) for row, answer in answers]

    def has_allowed(self, link: OriginLink, stream: int, host: str, port: int) -> bool:
        """Return whether the user has allowed a host and port to the errand on a stream."""
        return (link, stream, host, port) in self._allowed

    def _known(self, row: _Waiting) -> FlowAnswer | None:
        question = row.question
        return self._hosts.get((question.host, question.port)) if isinstance(question, HostQuestion) else None

    def _begin(self, row: _Waiting) -> CommandAnswer | FlowAnswer | None:
        left = row.until - self._clock()
        if left <= 0:
            return _refusal(row, "nobody has answered")
        try:
            ticket = self._queue.put(row.question, left)
        except MudroomError as error:
            return _refusal(row, str(error))
        self._queued.append((row, ticket))
        subject = f"{row.question.host}:{row.question.port}" if isinstance(row.question, HostQuestion) else "a command"
        self._announce(row.question.fork, subject, ticket.asked.name)
        return None

    def _answered(self, row: _Waiting, ticket: Ticket, now: float) -> CommandAnswer | FlowAnswer | None:
        try:
            decision = ticket.look()
            if decision is None and now >= row.until:
                decision, _ours = ticket.end("expired", f"nobody has answered in {self._timeout:g} s")
        except MudroomError as error:
            return _refusal(row, str(error))
        return None if decision is None else self._answer(row, decision)

    def _answer(self, row: _Waiting, decision: QueueDecision) -> CommandAnswer | FlowAnswer:
        question = row.question
        if not isinstance(question, HostQuestion):
            return answer_of(decision)._replace(keep=False)
        answer = host_answer(decision)
        if answer.keep:
            self._hosts[question.host, question.port] = answer._replace(keep=False, rule="")
        return answer._replace(keep=False, rule="")

    def forget(self, link: OriginLink) -> None:
        """Withdraw a link's questions, as it is over."""
        self._waiting = deque(row for row in self._waiting if row.link is not link)
        self._allowed = {allowed for allowed in self._allowed if allowed[0] is not link}
        for row, ticket in self._queued:
            if row.link is link:
                _withdraw(ticket, "the worker does not wait for the answer any more")
        self._queued = [pair for pair in self._queued if pair[0].link is not link]

    def close(self) -> None:
        for _row, ticket in self._queued:
            _withdraw(ticket, "the run is over")
        self._queued.clear()
        self._waiting.clear()


def _withdraw(ticket: Ticket, why: str) -> None:
    try:
        ticket.end("withdrawn", why)
        ticket.close()
    except (MudroomError, OSError):
        ticket.close()  # it stays in the queue, without a waiter


def _question(asked: Ask, fork: str, agent: str, fingerprint: str) -> CommandQuestion | HostQuestion:
    """Return a worker's question with the origin's names. Raise LinkError if it is none."""
    try:
        if asked.kind == "host":
            host = msgspec.msgpack.decode(asked.question, type=_HostShape)
            if not 0 <= host.port < 65536:
                raise LinkError("asks about a port that there is not")
            if not _is_host(host.host):
                raise LinkError("asks about a host that is none")
            return HostQuestion(host.host, host.port, claim.line(host.way)[:16], fork, agent)
        if asked.kind == "command":
            command = msgspec.msgpack.decode(asked.question, type=_CommandShape)
            return CommandQuestion(
                command.command[:_WORDS], command.cwd, fork, agent, _verdict(command.verdict), "", fingerprint
            )
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise LinkError(f"asks a question that cannot be read: {error}") from error
    raise LinkError("asks a question of a kind that there is not")


def _is_host(text: str) -> bool:
    """Return whether a text is a host as a gate spells it: no pattern, and no words for the user who reads it."""
    try:
        return parse_host(text.encode("ascii")).text == text
    except (ValueError, UnicodeEncodeError):
        return False


def _verdict(verdict: _VerdictShape) -> Verdict:
    if verdict.action not in ACTIONS or not set(verdict.classes) <= set(CLASSES):
        raise LinkError("asks about a verdict that there is not")
    action = next(action for action in ACTIONS if action == verdict.action)
    classes = tuple(name for name in CLASSES if name in verdict.classes)
    return Verdict(action, classes, claim.line(verdict.rule), claim.line(verdict.reason), claim.line(verdict.instead))


def _refusal(row: _Waiting, why: str) -> CommandAnswer | FlowAnswer:
    if isinstance(row.question, HostQuestion):
        return FlowAnswer(False, why=f"and {why}")
    return CommandAnswer(False, by="nobody", reason=why)


def _frame(row: _Waiting, answer: CommandAnswer | FlowAnswer) -> Frame:
    return frame_of(ANSWER, Answer(row.number, msgspec.msgpack.encode(answer)), row.stream)
