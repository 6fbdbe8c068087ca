"""What is asked, what runs, and what has happened."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from mudroom.web.shape.change import RowShape
from mudroom.web.shape.place import SummaryShape


class QuestionShape(Struct):
    id: str
    project: str
    project_path: str
    kind: Literal["command", "host"]
    state: Literal["waiting", "allowed", "denied", "expired", "withdrawn"]
    asked: int
    waiting: bool
    """Whether somebody waits for the answer; else it holds once, for whoever asks the same again."""
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
    """What ``always`` writes."""
    deny_rule: str = ""
    by: str = ""
    reason: str = ""
    until: int = 0
    """When whoever waits gives up; 0: nobody waits, or it is not known."""
    ended: int = 0
    """When it was decided; 0: not yet."""
    kept: bool = False
    """Whether the answer was one for always."""
    used: bool = False
    """Whether what was decided has been heeded."""


class QuestionsShape(Struct):
    questions: list[QuestionShape]
    """Those that wait, oldest first; then those that have ended, if they were asked for, newest first."""
    remarks: list[str] = []
    """Which queues cannot be read."""


class QuestionsQueryShape(Struct, forbid_unknown_fields=True):
    ended: bool = False
    """Those that were decided lately, too."""


class AnswerShape(Struct, forbid_unknown_fields=True):
    allow: bool
    keep: bool = False
    rule: str = ""
    """With ``keep``: the rule that was shown. Another one is not written."""
    reason: str = ""


class AnsweredShape(Struct):
    question: QuestionShape
    ours: bool
    """False: somebody else was first; ``question`` tells how it ended."""
    rule_written: bool = False
    problem: str = ""


class CommandShape(Struct):
    id: str
    """Empty: one in the foreground of another process; what it prints is that of its fork."""
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
    """Seconds of processor time."""
    memory: int | None = None
    processes: int = 0
    ports: list[int] = []


class CommandsShape(Struct):
    commands: list[CommandShape]


class OutputShape(Struct):
    id: str
    stdout: str
    stderr: str
    ended: bool
    stamp: str
    """Ask again with it: what has not changed is not sent twice."""
    changed: bool = True
    stdout_before: int | None = None
    """None: ``stdout`` follows on what was sent with the stamp that was given. Else it is the end of what there is, and
    so many bytes were printed before it."""
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
    """Nothing has changed in the fork since."""


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
    """Of the preview: something else is not dropped."""


class PreviewShape(Struct):
    """What would change in a fork if it were rolled back."""

    checkpoint: str
    fingerprint: str
    summary: SummaryShape
    rows: list[RowShape]
    total: int


class RolledBackShape(Struct):
    checkpoint: str
    undo: str
    """The checkpoint by which what was dropped can be had back; empty: nothing was."""


class EventShape(Struct):
    number: int
    time: int
    kind: str
    fork: str
    line: str
    """For people."""
    gravity: int
    """0: as it goes; 1: to be noticed; 2: refused, failed or missing."""
    data: dict[str, Any]


class EventsShape(Struct):
    events: list[EventShape]
    """Newest first."""
    head: int
    following: int | None = None
    """Ask again with it as ``before``; None: that was all."""


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


class FlowsShape(Struct):
    flows: list[FlowShape]
    following: int | None = None


class VerifiedShape(Struct):
    intact: bool
    events: int
    head: str
    problems: list[str]


class AmountShape(Struct):
    what: str
    number: int
    size: int


class UsageShape(Struct):
    total: int
    amounts: list[AmountShape]
    memory: int
    """Of all that runs in the background of its forks."""
    cpu: float
    processes: int
    remarks: list[str] = []
