"""A question that waits in the queue, and how it has ended. Values, and what follows from them alone.

An answer for which nobody waited any more counts once, and not for ever; a clock that was set back does not make it
younger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion, HostQuestion

VALIDITY = 3600.0
"""Seconds for which an answer is kept for the one who asks again."""

State = Literal["waiting", "allowed", "denied", "expired", "withdrawn"]
Kind = Literal["command", "host"]


class Moment(NamedTuple):
    time: int
    """Nanoseconds since 1970, by a clock that can be set."""
    running: int
    """Nanoseconds since the machine was started, asleep or not; no clock of the user's."""
    boot: str
    """Which start that was."""


class QueuedQuestionRecord(NamedTuple):
    """A question in the queue."""

    format: int
    name: str
    when: Moment
    patience: float
    """Seconds for which somebody would wait; 0: nobody."""
    note: str
    """What has changed since it was asked before; empty: nothing, or it was not."""
    command: CommandQuestion | None = None
    host: HostQuestion | None = None

    @property
    def kind(self) -> Kind:
        return "command" if self.command is not None else "host"

    @property
    def question(self) -> CommandQuestion | HostQuestion:
        question = self.command or self.host
        assert question is not None
        return question


class QueueDecision(NamedTuple):
    """How a question has ended; for good."""

    format: int
    state: State
    when: Moment
    by: str
    reason: str = ""
    keep: bool = False


def elapsed(since: Moment, now: Moment) -> float:
    """Seconds, by the clock that shows more of them; infinite if the one that can be set was set back: nothing is
    known then."""
    by_clock = (now.time - since.time) / 1e9
    if since.boot and since.boot == now.boot:
        return max(by_clock, (now.running - since.running) / 1e9)
    return by_clock if by_clock >= 0 else float("inf")


def answer_of(decision: QueueDecision) -> CommandAnswer:
    return CommandAnswer(decision.state == "allowed", decision.keep, decision.by, decision.reason)


class QueueRow(NamedTuple):
    """One question, as it is now."""

    asked: QueuedQuestionRecord
    decision: QueueDecision | None
    waiter: int
    """The process that waits for the answer; 0: none does."""
    used: bool
    """What was decided has been heeded."""
    size: int = 0
    """Bytes."""

    @property
    def name(self) -> str:
        return self.asked.name

    @property
    def state(self) -> State:
        return self.decision.state if self.decision is not None else "waiting"


def storable(question: CommandQuestion | HostQuestion) -> CommandQuestion | HostQuestion:
    """The same with texts that can be written as UTF-8: names come from anywhere. Words and paths are bytes."""
    if isinstance(question, HostQuestion):
        return question._replace(fork=storable_text(question.fork), agent=storable_text(question.agent))
    verdict = question.verdict
    verdict = verdict._replace(
        rule=storable_text(verdict.rule), reason=storable_text(verdict.reason), instead=storable_text(verdict.instead)
    )
    return question._replace(
        fork=storable_text(question.fork),
        agent=storable_text(question.agent),
        pattern=storable_text(question.pattern),
        verdict=verdict,
        terms=tuple(map(storable_text, question.terms)),
    )


def storable_text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class Room(NamedTuple):
    """How much is kept, and for how long."""

    waiting: int = 200
    decided: int = 200
    size: int = 64 << 20
    """Bytes of all questions together."""
    largest: int = 4 << 20
    """Bytes of one."""
    unanswered: float = 24 * 3600.0
    """Seconds for which a question stays that nobody waits for any more."""
    kept: float = 24 * 3600.0
    """Seconds for which is kept what was decided, for those who would decide it as well. Commands may hold secrets."""


def is_old(row: QueueRow, now: Moment, room: Room) -> bool:
    if row.decision is not None:
        return elapsed(row.decision.when, now) > room.kept
    return not row.waiter and elapsed(row.asked.when, now) > room.unanswered


def surplus(rows: Sequence[QueueRow], now: Moment, room: Room) -> set[str]:
    """What has to go so that there is room for one more: what is old, then what is decided, then what nobody waits for;
    of each the oldest first, as ``rows`` are. Raises ValueError if that does not make room."""
    decided = [row for row in rows if row.decision is not None]
    waiting = [row for row in rows if row.decision is None]
    gone = {row.name for row in decided[: max(0, len(decided) - room.decided)]}
    gone |= {row.name for row in rows if is_old(row, now, room)}
    size = sum(row.size for row in rows if row.name not in gone)
    count = sum(row.name not in gone for row in waiting)
    for row in [*decided, *waiting]:
        is_in_the_way = size + room.largest > room.size or (count >= room.waiting and row.decision is None)
        if is_in_the_way and row.name not in gone and not row.waiter:
            gone.add(row.name)
            size -= row.size
            count -= row.decision is None
    if size + room.largest > room.size or count >= room.waiting:
        raise ValueError(f"{count} questions wait already")
    return gone


def row_to_json(row: QueueRow, now: Moment) -> dict[str, Any]:
    """As ``mudroom.approvals/1`` has it (docs/FORMAT.md)."""
    asked, decision = row.asked, row.decision
    found: dict[str, Any] = {
        "id": row.name,
        "kind": asked.kind,
        "state": row.state,
        "asked": asked.when.time,
        "age_s": round(max(0.0, elapsed(asked.when, now))),
        "waiting": row.waiter != 0,
        "fork": asked.question.fork,
        "agent": asked.question.agent,
        "note": asked.note,
    }
    if asked.host is not None:
        found |= {"host": asked.host.host, "port": asked.host.port, "way": asked.host.way}
    if asked.command is not None:
        found |= _command(asked.command)
    ended = None
    if decision is not None:
        ended = {"by": decision.by, "reason": decision.reason, "always": decision.keep, "time": decision.when.time}
    return found | {"decision": ended, "used": row.used}


def _command(question: CommandQuestion) -> dict[str, Any]:
    from mudroom.core.result import text
    from mudroom.core.tree.path import show
    from mudroom.core.tree.quote import show_words

    return {
        "command": [text(word) for word in question.command],
        "shown": show_words(question.command),
        "cwd": text(question.cwd),
        "verdict": question.verdict._asdict(),
        "terms": list(question.terms),
        "pattern": question.pattern or None,
        "files": [show(path) for path, _digest in question.files],
        "fingerprint": question.fingerprint,
    }
