"""mudroom's texts in an editor's session, and the notifications that carry them (``session/update``). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mudroom.core.tree.change import Change, summarise
from mudroom.core.tree.path import show
from mudroom.ext.agents.acp.message import notification
from mudroom.typing import Any, NamedTuple

MOST_PATHS = 8
"""Most changed paths that a summary names."""
MOST_CHARACTERS = 16 << 10
"""Most characters shown of a terminal's output, its last."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])|[\x00-\x08\x0b-\x1f\x7f]")
"""Sequences that a terminal obeys (ECMA-48), and control characters except tab and newline."""


class AgentPlace(NamedTuple):
    """Where the agent works, in words."""

    fork: str
    project: str
    inside: bool
    """Whether the agent's own process is in the fork's sandbox."""
    agent: str


def chunk(session: str, text: str, number: int) -> bytes:
    """Return a message from mudroom, with its number in the session, shown as the agent's."""
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "messageId": f"mudroom-{number}", "content": content}
    return notification("session/update", {"sessionId": session, "update": update})


def tool_update(session: str, call: str, content: Sequence[Any]) -> bytes:
    update = {"sessionUpdate": "tool_call_update", "toolCallId": call, "content": list(content)}
    return notification("session/update", {"sessionId": session, "update": update})


def first_words(place: AgentPlace) -> str:
    where = "works" if place.inside else "runs on the host, and its file calls and terminals work"
    return f"mudroom: {place.agent} {where} in the fork `{place.fork}`. Nothing lands in {place.project} by itself."


def effect(place: AgentPlace) -> str:
    """Return where the effect of the agent's request stays."""
    if place.inside:
        return f"its effect stays in the fork {place.fork}"
    return f"its effect stays in the fork {place.fork} if the agent does it by a call, and is on the host if by itself"


def summary(place: AgentPlace, changes: Sequence[Change], number: int) -> str:
    """Return a summary of the fork's changes after a turn. ``number``: the turn's."""
    own = [change for change in changes if b".git" not in change.path.split(b"/")]
    count, fork = summarise(own).files, place.fork
    files = f"{count:,} file{' is' if count == 1 else 's are'} changed" if own else "the repository is changed"
    names = ", ".join(f"`{show(change.path).replace('`', '')}`" for change in own[:MOST_PATHS])
    more = f" and {len(own) - MOST_PATHS:,} more" if len(own) > MOST_PATHS else ""
    commits = f"; commits: `mudroom diff {fork} --commits`" if any(map(_moves_ref, changes)) else ""
    lines = [
        f"mudroom: {files} in the fork `{fork}`{': ' if own else ''}{names}{more}{commits}. "
        "Nothing has reached the project.",
        f"Review: `mudroom diff {fork}`",
    ]
    if place.inside:
        lines.append(
            f"Apply: `mudroom apply {fork}` when the agent has ended; while it runs: "
            f"`mudroom fork new {fork}-turn{number} --from {fork}`, then `mudroom apply {fork}-turn{number}`"
        )
    else:
        lines.append(f"Apply: `mudroom apply {fork}`")
    return "\n\n" + "\n\n".join(lines)


def _moves_ref(change: Change) -> bool:
    """Return whether a branch or tag may have moved: gitrepository-layout(5). Other files in .git do not count:
    opencode has its own file there."""
    _project, repository, inner = change.path.partition(b".git/")
    return bool(repository) and not {b"refs", b"packed-refs", b"reftable"}.isdisjoint(inner.split(b"/"))


def fenced(command: str, output: str, end: str) -> str:
    """Return a terminal as Markdown text. ``end``: how its command has ended; empty: it runs."""
    shown = _ESCAPES.sub("", output.replace("\r\n", "\n"))
    if len(shown) > MOST_CHARACTERS:
        shown = "…" + shown[-MOST_CHARACTERS:]
    line = " ".join(_ESCAPES.sub("", command).split())
    body = f"$ {line}\n{shown}" + ("" if shown.endswith("\n") or not shown else "\n") + (f"({end})\n" if end else "")
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}console\n{body}{fence}"
