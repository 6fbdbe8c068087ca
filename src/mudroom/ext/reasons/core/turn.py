"""The turn of a conversation that a hunk was observed in: joined by path, content and time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mudroom.core.text.hunk import Hunk
from mudroom.ext.reasons.core.step import Step
from mudroom.ext.reasons.core.transcript import Conversation, ToolCall

SLACK = 2 * 10**9
"""Nanoseconds between two clocks' readings of one moment."""
SHORTEST = 3
"""Characters of a line that says something: many files have a closing brace."""
MOST_READS = 8


class Turn(NamedTuple):
    conversation: Conversation
    call: ToolCall
    by: tuple[str, ...]
    """What agrees: path, content, time."""
    reads: tuple[str, ...]
    """Files that the conversation says to have read in this turn, before the call."""


def turn_of(
    conversations: Iterable[Conversation], steps: Sequence[Step], path: bytes, hunk: Hunk | None, mtime: int
) -> Turn | None:
    """Return the turn whose call agrees best, the latest of equal ones. ``steps``: the hunk's possible steps; a call
    outside their time is none of it. ``mtime``: of the file now, 0 if it is deleted. Time alone counts if it is the
    only call then."""
    rated: list[tuple[int, int, int, ToolCall, Conversation, tuple[str, ...]]] = []
    name = re.compile(rf"(?<![\w.-]){re.escape(path.decode('utf-8', 'replace'))}(?![\w-])")
    wanted = _telling_lines(hunk)
    for conversation in conversations:
        for place, call in enumerate(conversation.calls):
            if call.is_read or not any(_meets(call, step) for step in steps):
                continue
            by = _agreement(call, name, wanted, mtime)
            rated.append((_WORTH.get(by, 0), call.time, place, call, conversation, by))
    alone = sum(by == ("time",) for *_rest, by in rated) == 1
    rated = [row for row in rated if row[0] > 1 or (row[0] == 1 and alone)]
    if not rated:
        return None
    _worth, _time, place, call, conversation, by = max(rated, key=lambda row: row[:2])
    earlier = [each for each in conversation.calls[:place] if each.turn == call.turn and each.is_read]
    reads = list(dict.fromkeys(path for each in earlier for path in each.paths))
    return Turn(conversation, call, by, tuple(reads[-MOST_READS:]))


_WORTH = {
    ("path", "content", "time"): 5, ("path", "content"): 4, ("content", "time"): 3, ("path", "time"): 2, ("time",): 1,
}  # fmt: skip


def _agreement(call: ToolCall, name: re.Pattern[str], wanted: Sequence[str], mtime: int) -> tuple[str, ...]:
    is_named = name.search(call.text) is not None
    has_content = bool(wanted) and all(line in call.text for line in wanted)
    is_then = call.time - SLACK // 4 <= mtime <= call.until + SLACK // 4
    if call.paths and not is_named:
        return ()  # it is about another file
    return tuple(word for word, agrees in (("path", is_named), ("content", has_content), ("time", is_then)) if agrees)


def _telling_lines(hunk: Hunk | None) -> list[str]:
    """Return the added lines that say something; of a hunk without any, the removed ones."""
    shown = hunk.lines if hunk is not None else ()
    for sign in (b"+", b"-"):
        lines = [line[1:].decode("utf-8", "replace").strip() for line in shown if line[:1] == sign]
        if telling := [line for line in lines if len(line) >= SHORTEST]:
            return telling
    return []


def _meets(call: ToolCall, step: Step) -> bool:
    return call.time <= step.ended + SLACK and call.until >= step.began - SLACK
