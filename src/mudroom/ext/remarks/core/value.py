"""A remark as its file holds it (docs/FORMAT.md), and its checks. Pure.

The file may be written by the reviewer's own script or editor. Whatever it says is shown to people and handed to an
agent as text; nothing in it is run or resolved.
"""

from __future__ import annotations

import binascii
from typing import Literal

from msgspec import DecodeError, Struct, json, to_builtins

from mudroom.core.tree.path import relpath, show
from mudroom.errors import UsageError

FORMAT = 1
LONGEST = 10_000
"""Most characters in a text."""
MOST_ANSWERS = 200
MOST_LINES = 10_000_000
"""Largest line number."""
Side = Literal["new", "old"]
"""Which text the lines are of: the fork's, or the original, for lines that the fork has removed."""
SentState = Literal["sending", "waiting", "unknown", "sent"]


class RemarkAnswer(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    text: str
    by: Literal["reviewer", "agent"] = "reviewer"
    time: int = 0
    """Nanoseconds since 1970."""


class SentRemark(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    round: int
    """Which prompt to the agent it was in, from 1."""
    told: int
    """How many texts of the thread were in it: 1, the remark alone."""
    state: SentState
    """``sending`` from before the prompt is handed over; ``waiting`` until an agent fetches it; ``unknown`` if the
    agent did not end well, and may have read it or not."""


class ReviewRemark(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A remark with its thread. Without a path it is about the whole fork, without lines about the whole file."""

    text: str
    path: str = ""
    path_base64: str = ""
    """The path's bytes, if they are not UTF-8."""
    first: int = 0
    """Its first line, from 1, in the text ``version``."""
    last: int = 0
    """Its last line; 0: the first."""
    side: Side = "new"
    suggestion: str | None = None
    """The lines that the reviewer would have instead."""
    answers: tuple[RemarkAnswer, ...] = ()
    settled: bool = False
    sent: SentRemark | None = None
    version: str = ""
    """The digest of the file that the lines are counted in. Empty: the file as it is when mudroom first reads this."""
    time: int = 0
    """Nanoseconds since 1970."""
    format: int = FORMAT

    @property
    def place(self) -> bytes:
        """The path's bytes; empty: the whole fork. Absolute: it is in another project of the fork."""
        return binascii.a2b_base64(self.path_base64) if self.path_base64 else self.path.encode()

    @property
    def until(self) -> int:
        """The last line's number."""
        return self.last or self.first

    @property
    def texts(self) -> int:
        """How many texts the thread has."""
        return 1 + len(self.answers)

    @property
    def is_unsent(self) -> bool:
        """Whether the reviewer has written something that no prompt has had."""
        if self.settled:
            return False
        if self.sent is None:
            return True
        return any(answer.by == "reviewer" for answer in self.answers[self.sent.told - 1 :])


def parse_remark(data: bytes) -> ReviewRemark:
    """Return the remark. Raise ValueError with the reason if the file is damaged."""
    try:
        remark = json.decode(data, type=ReviewRemark)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if remark.format != FORMAT:
        raise ValueError(f"its format is {remark.format}, and this version reads {FORMAT}")
    reason = _fault(remark)
    if reason:
        raise ValueError(reason)
    return remark


def format_remark(remark: ReviewRemark) -> bytes:
    return json.format(json.encode({"format": FORMAT, **to_builtins(remark)})) + b"\n"


def checked(remark: ReviewRemark) -> ReviewRemark:
    """Return a remark of the user's. Raise UsageError if it is invalid."""
    reason = _fault(remark)
    if reason:
        raise UsageError(f"the remark cannot be kept: {reason}", "mudroom comment FORK PATH:LINE TEXT")
    return remark


def _fault(remark: ReviewRemark) -> str:
    """Return why a remark is invalid, or an empty string."""
    texts = [remark.text, *(answer.text for answer in remark.answers)]
    if not all(text.strip() for text in texts):
        return "a text is empty"
    if max(map(len, (*texts, remark.suggestion or ""))) > LONGEST:
        return f"a text has more than {LONGEST:,} characters"
    if len(remark.answers) > MOST_ANSWERS:
        return f"it has more than {MOST_ANSWERS} answers"
    if not all(0 <= line <= MOST_LINES for line in (remark.first, remark.last)) or 0 < remark.last < remark.first:
        return f"its lines {remark.first}-{remark.last} are none"
    try:
        path = remark.place
    except binascii.Error:
        return "path_base64 is not base64"
    try:
        is_plain = not path or relpath(path.removeprefix(b"/")) == path.removeprefix(b"/")
    except ValueError:
        is_plain = False
    if not is_plain:
        return f"{show(path)} is not a path in a project"
    if remark.last and not remark.first:
        return "it has a last line and no first one"
    if remark.first and not path:
        return "it has lines and no path"
    if remark.suggestion is not None and not (remark.first and remark.side == "new"):
        return "a suggestion is for lines that the file has"
    sent = remark.sent
    if sent is not None and not (0 < sent.round <= 1_000_000 and 0 < sent.told <= remark.texts):
        return "it was sent in a round, or with texts, that are none"
    return ""
