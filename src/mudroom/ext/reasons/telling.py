"""What was observed, as lines and as JSON. Texts of conversations and commands are shortened, redacted and escaped."""

from __future__ import annotations

import time

from mudroom.core.journal.event_text import printable
from mudroom.core.text.plural import counted
from mudroom.core.text.redaction import redact
from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_text
from mudroom.ext.reasons.session import Observed, ObservedFile, Reasons, new_range
from mudroom.ext.reasons.turn import ObservedTurn
from mudroom.typing import Any

LONGEST = 200
"""Characters of a prompt or a command that are shown."""
_KINDS = {
    "background": "in the background ",
    "edit": "by file tools ",
    "recover": "cut off ",
    "unmount": "by hand in a mount ",
}


def observed_lines(reasons: Reasons, seen: ObservedFile, row: Observed) -> list[str]:
    """Return what was observed at a hunk, the main line first."""
    steps = [_step_words(seen, number) for number in row.blame.steps]
    turn = row.turn
    if not steps:
        return [f"observed: no command: {_why_none(seen, row)}"]
    first = f"observed: changed by {'' if row.blame.is_certain or len(steps) == 1 else 'some of '}{'; '.join(steps)}"
    if turn is not None and turn.call.turn:
        first += f", turn {turn.call.turn}: “{_shortened(reasons, turn.call.prompt)}”"
    lines = [first]
    if row.blame.since:
        lines.append("the file has changed since, by something that is not recorded")
    if turn is not None:
        agent, name = printable(turn.conversation.agent), printable(turn.conversation.name)
        call = f"{turn.call.tool}: {turn.call.text}" if not turn.call.paths else turn.call.tool
        lines.append(
            f"{agent}'s {name} has this call, which agrees in {', '.join(turn.by)}: {_shortened(reasons, call)}"
        )
    if row.blame.earlier:
        numbers = ", ".join(str(number + 1) for number in row.blame.earlier)
        lines.append(f"other commands that changed the file: {numbers}")
    if row.hosts:
        lines.append(f"hosts reached before: {printable(', '.join(row.hosts))}")
    if turn is not None and turn.reads:
        lines.append(f"read before, as the conversation says: {printable(', '.join(turn.reads))}")
    else:
        lines.append("what it read is not recorded")
    return lines


def where(row: Observed) -> str:
    return row.hunk.header.decode().strip() if row.hunk is not None else "(the whole file)"


def observed_to_json(reasons: Reasons, seen: ObservedFile, row: Observed) -> dict[str, Any]:
    """Return what was observed at a hunk, for programs. Numbers of commands count from 1."""
    first, lines = new_range(row.hunk) if row.hunk is not None else (0, 0)
    return {
        "path": show_path(seen.path), "header": where(row) if row.hunk is not None else "", "first": first,
        "lines": lines, "commands": [_step_to_json(seen, number) for number in row.blame.steps],
        "of": len(seen.steps), "others": [number + 1 for number in row.blame.earlier],
        "certain": row.blame.is_certain, "since": row.blame.since,
        "turn": None if row.turn is None else _turn_to_json(reasons, row.turn),
        "hosts": [printable(host) for host in row.hosts], "text": observed_lines(reasons, seen, row),
    }  # fmt: skip


def _turn_to_json(reasons: Reasons, turn: ObservedTurn) -> dict[str, Any]:
    conversation, call = turn.conversation, turn.call
    return {
        "agent": conversation.agent, "conversation": printable(conversation.name), "turn": call.turn,
        "prompt": _shortened(reasons, call.prompt), "tool": _shortened(reasons, call.tool), "time": call.time,
        "by": list(turn.by), "reads": [printable(path) for path in turn.reads],
    }  # fmt: skip


def _step_to_json(seen: ObservedFile, number: int) -> dict[str, Any]:
    step = seen.steps[number]
    return {
        "number": number + 1, "kind": step.kind, "event": step.event, "command": list(step.command),
        "agent": step.agent or None, "began": step.began, "ended": step.ended, "exit_code": step.exit_code,
    }  # fmt: skip


def _step_words(seen: ObservedFile, number: int) -> str:
    step = seen.steps[number]
    words = f"command {number + 1} of {len(seen.steps)} {_KINDS.get(step.kind, '')}"
    if step.command:
        words += f"(`{show_text(step.command, LONGEST)}`) "
    clock = time.strftime("%H:%M", time.localtime(step.ended // 10**9))
    return f"{words.rstrip()}, {clock}" + (f", exit {step.exit_code}" if step.exit_code else "")


def _shortened(reasons: Reasons, text: str) -> str:
    line = " ".join(redact(text[: 4 * LONGEST], reasons.secrets).split())
    return printable(line if len(line) <= LONGEST else line[: LONGEST - 1] + "…")


def _why_none(seen: ObservedFile, row: Observed) -> str:
    if row.blame.since:
        return "the file has changed by something that is not recorded"
    if seen.unknown:
        return f"{counted(seen.unknown, 'command')} of this fork recorded no paths (by hand, or an earlier mudroom)"
    if seen.cut:
        return f"{counted(seen.cut, 'command')} changed more paths than are recorded, perhaps this one"
    return "none of this fork's commands has changed it" if seen.steps else "this fork has none in the journal"
