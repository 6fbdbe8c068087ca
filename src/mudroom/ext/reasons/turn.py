"""The turn of a conversation that a hunk was observed in: joined by path, content and time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mudroom.core.text.hunk import Hunk
from mudroom.ext.reasons.core.step import Step
from mudroom.ext.reasons.transcript import Conversation, ToolCall
from mudroom.typing import NamedTuple

SLACK = 2 * 10**9
"""Nanoseconds between two clocks' readings of one moment."""
SHORTEST = 3
"""Characters of a line that says something: many files have a closing brace."""
MOST_READS = 8


class ObservedTurn(NamedTuple):
    conversation: Conversation
    call: ToolCall
    by: tuple[str, ...]
    """What agrees: path, or its last part (name), content, or some lines, time."""
    reads: tuple[str, ...]
    """Files that the conversation says to have read in this turn, before the call."""


_WORTH = {"content": 16, "some lines": 6, "path": 8, "name": 4, "time": 1}


def turn_of(
    conversations: Iterable[Conversation], steps: Sequence[Step], path: bytes, hunk: Hunk | None, mtime: int
) -> ObservedTurn | None:
    """Return the turn whose call agrees best, the latest of equal ones. ``steps``: the hunk's possible steps; a call
    outside their time is none of it. ``mtime``: of the file now, 0 if it is deleted. One sign alone is not enough, but
    for the time of the only call then."""
    rated: list[tuple[int, int, int, ToolCall, Conversation, tuple[str, ...]]] = []
    names, wanted = [_pattern(path), _pattern(path.rpartition(b"/")[2])], _telling_lines(hunk)
    for conversation in conversations:
        for place, call in enumerate(conversation.calls):
            if not call.is_read and any(_meets(call, step) for step in steps):
                by = _agreement(call, names, wanted, mtime)
                rated.append((sum(_WORTH[word] for word in by), call.time, place, call, conversation, by))
    alone = sum(by == ("time",) for *_rest, by in rated) == 1
    rated = [row for row in rated if len(row[-1]) > 1 or (row[-1] == ("time",) and alone)]
    if not rated:
        return None
    _worth, _time, place, call, conversation, by = max(rated, key=lambda row: row[:2])
    earlier = [each for each in conversation.calls[:place] if each.turn == call.turn and each.is_read]
    reads = list(dict.fromkeys(path for each in earlier for path in each.paths))
    return ObservedTurn(conversation, call, by, tuple(reads[-MOST_READS:]))


def _pattern(path: bytes) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(path.decode('utf-8', 'replace'))}(?![\w-])")


def _agreement(call: ToolCall, names: Sequence[re.Pattern[str]], wanted: Sequence[str], mtime: int) -> tuple[str, ...]:
    """Return in what a call agrees. The last part of the path is enough for a shell, which has a directory of its
    own."""
    is_path, is_name = (name.search(call.text) is not None for name in names)
    if call.paths and not is_path:
        return ()  # it is about another file
    count = sum(line in call.text for line in wanted)
    signs = {
        "path": is_path,
        "name": is_name and not is_path,
        "content": 0 < len(wanted) == count,
        "some lines": 0 < count < len(wanted),
        "time": call.time - SLACK // 4 <= mtime <= call.until + SLACK // 4,
    }
    return tuple(word for word, agrees in signs.items() if agrees)


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
