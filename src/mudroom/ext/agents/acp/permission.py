"""The agent's permission requests (``session/request_permission``): command, mudroom's note, refusal. Pure.

The agent writes the request, so it proves nothing: only the sandbox confines the agent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from mudroom.core.command.verdict import Verdict
from mudroom.core.text.escaping import escape_line
from mudroom.typing import Any

MOST_SHOWN = 300
"""Most characters shown of a reason or a command."""
_SHELL = "/bin/sh"
_NAMED = ("command", "cmd", "argv")
"""Names for a tool argument that holds a command."""
_EXPLAINED = re.compile(r"\s+(?:\[[^\]]*\]|\([^()]*\))\s*$")
"""Gemini's additions to a command's title: ``[in DIR]`` and ``(a description)``."""


def tool_call_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool call that a request is about; empty if it names none. Version 2 has it in ``subject``."""
    subject = params.get("subject")
    call = params.get("toolCall") or (subject.get("toolCall") if isinstance(subject, dict) else None)
    return call if isinstance(call, dict) else {}


def command_of(call: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return the command that a tool call would run, as words; empty if there is none, or it is not named."""
    raw = call.get("rawInput")
    if isinstance(raw, dict):
        for name in _NAMED:
            value = raw.get(name)
            if isinstance(value, str) and value.strip():
                return shell_line(value)
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                return tuple(_bytes(word) for word in value)
    title = call.get("title")
    if call.get("kind") == "execute" and isinstance(title, str):
        line = title.strip()
        while (shorter := _EXPLAINED.sub("", line)) != line:
            line = shorter
        line = line.strip("`").strip()
        return shell_line(line) if line else ()
    return ()


def shell_line(line: str, shell: str = _SHELL) -> tuple[bytes, ...]:
    """Return the words that run a shell line."""
    return (_bytes(shell), b"-c", _bytes(line))


_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-]+")


def words_of(command: str, args: Sequence[str], shell: str = _SHELL) -> tuple[bytes, ...]:
    """Return the words to run for ``terminal/create``. A command with one word is a program with its arguments. Any
    other is a shell line, as editors run it: agents send ``npm test && git diff`` there."""
    if _PLAIN.fullmatch(command):
        return (_bytes(command), *(_bytes(word) for word in args))
    return shell_line(" ".join([command, *map(shlex.quote, args)]), shell)


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass").replace(b"\0", b"")


def one_line(text: str) -> str:
    """Return a foreign text in one line, with invisible characters escaped."""
    shown = escape_line(" ".join(text.split()).encode("utf-8", "surrogatepass")).text
    return shown if len(shown) <= MOST_SHOWN else shown[: MOST_SHOWN - 1] + "…"


def verdict_text(verdict: Verdict | None, place: str) -> str:
    """Return mudroom's note on a request. ``verdict`` None: it is not about a command. ``place``: where its effect
    is."""
    if verdict is None or verdict.action == "allow":
        because = "" if verdict is None else f"; the policy allows it ({one_line(verdict.rule)})"
        return f"mudroom: {place}{because}."
    return f"mudroom: {place}; the policy: {verdict.action} ({one_line(verdict.rule)}), {one_line(verdict.reason)}."


def refusal_text(verdict: Verdict) -> str:
    instead = f"; instead: {one_line(verdict.instead)}" if verdict.instead else ""
    return f"mudroom refused it: {one_line(verdict.reason)} ({one_line(verdict.rule)}){instead}."


def text_content(text: str) -> dict[str, Any]:
    """Return an item for a tool call's content."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def with_text(params: Mapping[str, Any], text: str, known: Sequence[Any] = ()) -> dict[str, Any]:
    """Return a request's parameters with mudroom's note at the end of the text that the editor shows. ``known``: the
    tool call's content in its last update, which a request's content replaces."""
    if "toolCall" not in params:  # version 2
        before = params.get("description")
        return {**params, "description": f"{before}\n\n{text}" if isinstance(before, str) and before else text}
    call = tool_call_of(params)
    content = call.get("content")
    shown = content if isinstance(content, list) else list(known)
    return {**params, "toolCall": {**call, "content": [*shown, text_content(text)]}}


def refusal_of(options: Any) -> dict[str, Any]:
    """Return the result that refuses a request: its option to reject once, else its option to reject always, else a
    cancelled turn."""
    rows = [row for row in options if isinstance(row, dict)] if isinstance(options, list) else []
    for kind in ("reject_once", "reject_always"):
        for row in rows:
            if row.get("kind") == kind and isinstance(row.get("optionId"), str):
                return {"outcome": {"outcome": "selected", "optionId": row["optionId"]}}
    return {"outcome": {"outcome": "cancelled"}}
