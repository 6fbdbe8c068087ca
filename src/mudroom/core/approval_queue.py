"""Values and pure functions for the approval queue: questions and their decisions.

An answer that arrives after its waiter has gone counts once, for a limited time. Setting the clock cannot extend that
time (``elapsed``) or delete a question or answer early (``age``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion, HostQuestion, offers_of
from mudroom.core.clock import LONGEST, SECOND, Moment
from mudroom.core.result import text
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.typing import Any, Literal, NamedTuple

VALIDITY = 3600.0
"""Seconds for which an answer is kept for a repeated question, and for which an answer "for an hour" holds."""

State = Literal["waiting", "allowed", "denied", "expired", "withdrawn"]
Kind = Literal["command", "host"]


class QueuedQuestionRecord(NamedTuple):
    """A question in the queue."""

    format: int
    name: str
    when: Moment
    patience: float
    """Seconds for which the waiter would wait; 0: no waiter."""
    note: str
    """Changes since the same question was last asked; empty: no changes, or a new question."""
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
    """The final decision about a question."""

    format: int
    state: State
    when: Moment
    by: str
    reason: str = ""
    keep: bool = False
    rule: str = ""
    """As in ``FlowAnswer``."""
    hour: bool = False
    """Whether it answers the same question again, for ``VALIDITY`` seconds. An answer by that has no hour itself."""


def elapsed(since: Moment, now: Moment) -> float:
    """Return the elapsed seconds by the clock that shows more. Return infinity if the wall clock was set back and no
    other clock is available."""
    by_clock = (now.time - since.time) / 1e9
    if since.boot and since.boot == now.boot:
        return max(by_clock, (now.running - since.running) / 1e9)
    return by_clock if by_clock >= 0 else float("inf")


def age(since: Moment, now: Moment) -> float:
    """Return the age in seconds, as used for deletion. Setting the wall clock makes no data older: within one boot the
    clock is ignored, and from one boot to the next at most ``LONGEST`` counts."""
    if since.boot and since.boot == now.boot:
        return (now.running - since.running) / SECOND
    return max(0, min(now.time - since.time, LONGEST)) / SECOND


def answer_of(decision: QueueDecision) -> CommandAnswer:
    return CommandAnswer(decision.state == "allowed", decision.keep, decision.by, decision.reason)


def is_repeated(decision: QueueDecision, now: Moment) -> bool:
    """Return whether a decision answers the same question once more."""
    is_answer = decision.state in ("allowed", "denied")
    return decision.hour and is_answer and elapsed(decision.when, now) <= VALIDITY


class QueueRow(NamedTuple):
    """A question's present state."""

    asked: QueuedQuestionRecord
    decision: QueueDecision | None
    waiter: int
    """The waiter's pid; 0: no waiter."""
    used: bool
    """Whether the decision was used."""
    size: int = 0
    """Bytes."""

    @property
    def name(self) -> str:
        return self.asked.name

    @property
    def state(self) -> State:
        return self.decision.state if self.decision is not None else "waiting"


def storable(question: CommandQuestion | HostQuestion, known: Collection[str] = ()) -> CommandQuestion | HostQuestion:
    """Return the question as stored: without secrets (``core/approval/shown_question.py``), and with texts that UTF-8
    can encode, because names can come from any source. Words and paths are bytes. ``known``: secret values."""
    if isinstance(question, HostQuestion):
        return question._replace(fork=storable_text(question.fork), agent=storable_text(question.agent))
    from mudroom.core.approval.shown_question import shown_question

    question = shown_question(question, known)
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


class QueueRoom(NamedTuple):
    """Size and age limits for the queue."""

    waiting: int = 200
    decided: int = 200
    size: int = 64 << 20
    """Total bytes of all questions."""
    largest: int = 4 << 20
    """Bytes in a single question."""
    unanswered: float = 24 * 3600.0
    """Seconds for which a question without a waiter is kept."""
    kept: float = 24 * 3600.0
    """Seconds for which decisions are kept so that other approvers can see them. Limited because commands can contain
    secrets."""


def is_old(row: QueueRow, now: Moment, room: QueueRoom) -> bool:
    if row.decision is not None:
        return age(row.decision.when, now) > room.kept
    return not row.waiter and age(row.asked.when, now) > room.unanswered


def questions_to_delete(rows: Sequence[QueueRow], now: Moment, room: QueueRoom) -> set[str]:
    """Return the names of the questions to delete so that another fits: expired ones, then decided ones, then those
    without a waiter, oldest first as in ``rows``. Raise ValueError if that does not make enough room."""
    decided = [row for row in rows if row.decision is not None]
    waiting = [row for row in rows if row.decision is None]
    deleted = {row.name for row in decided[: max(0, len(decided) - room.decided)]}
    deleted |= {row.name for row in rows if is_old(row, now, room)}
    size = sum(row.size for row in rows if row.name not in deleted)
    count = sum(row.name not in deleted for row in waiting)
    for row in [*decided, *waiting]:
        must_go = size + room.largest > room.size or (count >= room.waiting and row.decision is None)
        if must_go and row.name not in deleted and not row.waiter:
            deleted.add(row.name)
            size -= row.size
            count -= row.decision is None
    if size + room.largest > room.size or count >= room.waiting:
        raise ValueError(f"{count} questions are waiting already")
    return deleted


def row_to_json(row: QueueRow, now: Moment) -> dict[str, Any]:
    """Return the JSON form ``mudroom.approvals/1`` (docs/FORMAT.md)."""
    asked, decision = row.asked, row.decision
    fields: dict[str, Any] = {
        "id": row.name,
        "kind": asked.kind,
        "state": row.state,
        "asked": asked.when.time,
        "age_s": round(age(asked.when, now)),
        "waiting": row.waiter != 0,
        "fork": asked.question.fork,
        "agent": asked.question.agent,
        "note": asked.note,
    }
    if asked.host is not None:
        fields |= {"host": asked.host.host, "port": asked.host.port, "way": asked.host.way}
        offered = offers_of(asked.host)
        fields["preset"] = next((offer.entry for offer in offered if offer.key == "p"), None)
        fields["offers"] = [{"rule": offer.rule, "allows": offer.allows} for offer in offered]
    if asked.command is not None:
        fields |= _command(asked.command)
    ended = None
    if decision is not None:
        ended = {
            "by": decision.by,
            "reason": decision.reason,
            "always": decision.keep,
            "hour": decision.hour,
            "time": decision.when.time,
        }
    return fields | {"decision": ended, "used": row.used}


def _command(question: CommandQuestion) -> dict[str, Any]:
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
