"""A reviewer's remarks about a fork."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class RemarkAnswerShape(Struct):
    text: str
    by: Literal["reviewer", "agent"]
    time: int


class ReviewRemarkShape(Struct):
    name: str
    id: str
    """The file; empty: the remark is about the whole fork."""
    label: str
    """Its place, for people: ``src/app.py:3-4``."""
    first: int
    """Its first line in the file as it is; 0: it is about the file."""
    last: int
    side: Literal["new", "old"]
    where: Literal["", "here", "answered", "outdated", "unknown"]
    """What became of its lines: unchanged, changed, gone, or they cannot be read."""
    state: str
    """For people: ``sent in round 1; the lines have changed``."""
    text: str
    suggestion: str | None
    answers: list[RemarkAnswerShape]
    settled: bool
    unsent: bool
    time: int


class ReviewRemarksShape(Struct):
    remarks: list[ReviewRemarkShape]
    """Oldest first."""
    damaged: list[str]
    """A line for each file of a remark that cannot be read."""
    round: int
    """The last round; 0: nothing was sent."""
    checkpoint: str
    """The checkpoint before it; empty: there is none (any more)."""
    new: list[str]
    """Ids of the files that have changed since."""
    unsent: int
    cut_off: list[str]
    """Remarks that the agent has read or not."""


class AddRemarkShape(Struct, forbid_unknown_fields=True):
    text: str
    id: str = ""
    first: int = 0
    last: int = 0
    side: Literal["new", "old"] = "new"
    suggestion: str | None = None


class ChangeRemarkShape(Struct, forbid_unknown_fields=True):
    act: Literal["answer", "settle", "reopen", "take", "remove"]
    text: str = ""
    """Of an answer."""


class RemarkPromptShape(Struct):
    id: str
    """A sending is bound to it."""
    prompt: str
    command: str
    """The agent's command, without the prompt; empty: the fork has no agent that goes on."""
    problem: str
    """Why there is none."""


class SendRemarksShape(Struct, forbid_unknown_fields=True):
    id: str
    waits: bool = False
    """They wait for the agent's own look (``mudroom mcp``)."""
