"""Questions, commands, checkpoints and events."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from mudroom.ext.web.shape.change import RowShape
from mudroom.ext.web.shape.place import SummaryShape


class OfferShape(Struct):
    """A rule that a question about a host offers."""

    rule: str
    words: str
    allows: bool
    hosts: list[str]
    """Of a preset."""


class QuestionShape(Struct):
    id: str
    project: str
    project_path: str
    kind: Literal["command", "host"]
    state: Literal["waiting", "allowed", "denied", "expired", "withdrawn"]
    asked: int
    waiting: bool
    """Whether a command waits for the answer; otherwise the answer holds once, for the next equal question."""
    fork: str
    agent: str
    what: str
    """The command, or the host and port."""
    why: str
    """Classes, reason and rule."""
    cwd: str = ""
    terms: list[str] = []
    files: list[str] = []
    note: str = ""
    can_keep: bool = False
    allow_rule: str = ""
    """The rule that ``always`` writes."""
    deny_rule: str = ""
    hour_rule: str = ""
    """What an answer for an hour does; empty: it is not offered."""
    offers: list[OfferShape] = []
    by: str = ""
    reason: str = ""
    until: int = 0
    """When the waiter gives up; 0: no waiter, or unknown."""
    ended: int = 0
    """When it was decided; 0: not yet."""
    kept: bool = False
    """Whether the answer wrote a rule."""
    holds_until: int = 0
    """When an answer for an hour ends, which answers the same question until then; 0: it is none, or over."""
    used: bool = False
    """Whether the decision has been used."""


class QuestionsShape(Struct):
    questions: list[QuestionShape]
    """Waiting questions, oldest first; then, if requested, decided ones, newest first."""
    remarks: list[str] = []
    """The queues that cannot be read."""


class QuestionsQueryShape(Struct, forbid_unknown_fields=True):
    ended: bool = False
    """Include recently decided questions."""


class AnswerShape(Struct, forbid_unknown_fields=True):
    allow: bool
    keep: bool = False
    rule: str = ""
    """With ``keep``: the rule that was shown, ``allow_rule``, ``deny_rule`` or one of ``offers``. Another rule is not
    written."""
    hour: bool = False
    """Answer the same question for an hour, too. A refusal of a question that is so allowed takes that back."""
    reason: str = ""


class AnsweredShape(Struct):
    question: QuestionShape
    ours: bool
    """False: the question was answered elsewhere first; ``question`` has that answer."""
    rule_written: bool = False
    problem: str = ""


class CommandShape(Struct):
    id: str
    """Empty: another process's foreground command; its output is the fork's."""
    fork: str
    agent: str
    command: str
    state: Literal["running", "foreground", "ended"]
    started: int
    ended: int | None = None
    exit_code: int | None = None
    timed_out: bool = False
    level: int | None = None
    cpu: float | None = None
    """Processor time in seconds."""
    memory: int | None = None
    processes: int = 0
    ports: list[int] = []
    hosts: list[str] = []
    """By port: the host of the server, at the page's port."""


class CommandsShape(Struct):
    commands: list[CommandShape]


class OutputShape(Struct):
    id: str
    stdout: str
    stderr: str
    ended: bool
    stamp: str
    """Send it with the next request: unchanged output is not sent twice."""
    changed: bool = True
    stdout_before: int | None = None
    """None: ``stdout`` continues the output that was sent with the given stamp. Otherwise ``stdout`` is the end of the
    output, and this number of bytes was printed before it."""
    stderr_before: int | None = None


class StartRequestShape(Struct, forbid_unknown_fields=True):
    command: list[str]
    timeout: float | None = None
    """Seconds."""


class EndRequestShape(Struct, forbid_unknown_fields=True):
    grace: float = 2.0
    """Seconds between SIGTERM and SIGKILL."""


class CheckpointShape(Struct):
    name: str
    time: int
    automatic: bool
    current: bool
    """The fork has not changed since."""


class TimelineShape(Struct):
    fork: str
    created: int
    checkpoints: list[CheckpointShape]
    """Oldest first."""


class CheckpointRequestShape(Struct, forbid_unknown_fields=True):
    name: str


class RollbackRequestShape(Struct, forbid_unknown_fields=True):
    checkpoint: str
    fingerprint: str
    """The preview's fingerprint; other changes are not dropped."""


class PreviewShape(Struct):
    """The effect of a rollback on a fork."""

    checkpoint: str
    fingerprint: str
    summary: SummaryShape
    rows: list[RowShape]
    total: int


class RolledBackShape(Struct):
    checkpoint: str
    undo: str
    """The checkpoint that holds the dropped changes; empty: no change was dropped."""


class EventShape(Struct):
    number: int
    time: int
    kind: str
    fork: str
    line: str
    """For people."""
    gravity: int
    """0: normal; 1: notable; 2: refused, failed or missing."""
    data: dict[str, Any]


class EventsShape(Struct):
    events: list[EventShape]
    """Newest first."""
    head: int
    following: int | None = None
    """``before`` for the next page; None: this is the last page."""


class FlowShape(Struct):
    number: int
    time: int
    fork: str
    host: str
    port: int
    verdict: str
    rule: str
    reason: str
    sent: int
    received: int
    line: str
    times: int = 1
    """More than 1: so many requests were refused in the same way."""


class FlowsShape(Struct):
    flows: list[FlowShape]
    following: int | None = None


class AmountShape(Struct):
    what: str
    number: int
    size: int


class UsageShape(Struct):
    total: int
    amounts: list[AmountShape]
    memory: int
    """Used by all background commands in its forks."""
    cpu: float
    processes: int
    remarks: list[str] = []
