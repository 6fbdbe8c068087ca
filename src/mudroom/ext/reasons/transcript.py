"""An agent's conversation: its prompts and the calls of its tools.

The file was written in a sandbox: it is a claim. Agents use many forms, which change; a record counts as a prompt if it
has the role of the user, and as a call if it has a name and an input, at whatever depth. Tried with the JSON lines of
claude and codex, and with JSON in the documented forms of gemini, qwen and opencode.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime

from mudroom.typing import Any, NamedTuple

LARGEST = 32 << 20
"""Bytes of a conversation that are read."""
MOST_CALLS, MOST_TEXT, MOST_DEPTH = 20_000, 1 << 18, 8
"""Calls of a conversation, characters of one call, and levels in one record."""
_TIMES = ("timestamp", "created_at", "createdAt", "time", "start")
_INPUTS = ("input", "arguments", "args", "parameters")
_READS = ("read", "view", "grep", "glob", "search", "list", "ls", "cat")


class ToolCall(NamedTuple):
    turn: int
    """Prompts so far, from 1; 0: none was found."""
    prompt: str
    tool: str
    text: str
    """All texts of the input, a line each."""
    paths: tuple[str, ...]
    """Those that name a file."""
    time: int
    """Nanoseconds since 1970."""
    until: int
    """The next record's time."""
    model: str

    @property
    def is_read(self) -> bool:
        """Whether the tool's name says that it only reads."""
        name = self.tool.lower().rpartition("__")[2]
        return any(name == word or name.startswith((f"{word}_", f"{word}file")) for word in _READS)


class Conversation(NamedTuple):
    agent: str
    name: str
    """The file's name."""
    calls: tuple[ToolCall, ...]
    skipped: int
    """Lines that are no JSON, and calls beyond the bounds."""


def parse_conversation(agent: str, name: str, data: bytes) -> Conversation:
    """Return what a conversation's file holds. It is never refused: what cannot be read is counted."""
    reader = _Reader()
    for record in _records(name, data[:LARGEST], reader):
        reader.model = _model(record) or reader.model
        reader.visit(record, 0, 0)
    times = sorted(reader.times)
    nexts = (bisect_right(times, call.time) for call in reader.calls)
    calls = (
        call._replace(until=times[at] if at < len(times) else call.time)
        for call, at in zip(reader.calls, nexts, strict=True)
    )
    return Conversation(agent, name, tuple(calls), reader.skipped + (len(data) > LARGEST))


def _records(name: str, data: bytes, reader: _Reader) -> Iterator[Any]:
    for part in [data] if name.endswith(".json") else data.split(b"\n"):
        if part.strip():
            try:
                record = json.loads(part)
            except (ValueError, RecursionError):
                reader.skipped += 1
                continue
            messages = record.get("messages") if isinstance(record, dict) else record
            yield from messages if isinstance(messages, list) else [record]


class _Reader:
    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.times: list[int] = []
        self.skipped, self.model = 0, ""
        self._turn, self._prompt, self._is_fresh = 0, "", False

    def visit(self, value: Any, time: int, depth: int) -> None:
        """Note the prompts and calls in a record, at their own time or that of what holds them."""
        if depth > MOST_DEPTH:
            return
        if isinstance(value, list):
            for each in value:
                self.visit(each, time, depth + 1)
        if not isinstance(value, dict) or value.get("isMeta") is True:
            return
        own = next((found for key in _TIMES if (found := _time(value.get(key)))), 0)
        if own and depth <= 1:
            self.times.append(own)
        time = own or time
        if "user" in (value.get("role"), value.get("type")) and (prompt := _prompt(value.get("content"))):
            self._note_prompt(prompt, time)
        elif (call := _call(value)) is not None:
            self._note_call(*call, time)
        else:
            for each in value.values():
                self.visit(each, time, depth + 1)

    def _note_prompt(self, prompt: str, time: int) -> None:
        if time and not (self._is_fresh and prompt == self._prompt):  # some keep a prompt twice
            self._turn, self._prompt, self._is_fresh = self._turn + 1, prompt, True

    def _note_call(self, tool: str, given: Any, time: int) -> None:
        if len(self.calls) >= MOST_CALLS or not time:
            self.skipped += 1
            return
        self._is_fresh = False
        texts = list(_texts(given, "", 0))
        paths = tuple(text for key, text in texts if "path" in key or "file" in key)
        text = "\n".join(text for _key, text in texts)[:MOST_TEXT]
        self.calls.append(ToolCall(self._turn, self._prompt, tool, text, paths, time, time, self.model))


def _prompt(content: Any) -> str:
    """Return a prompt's text without what the agent adds to it by itself, which is in tags; empty if it is none."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    words = [text.strip() for text in texts if isinstance(text, str)]
    return "\n".join(word for word in words if word and not (word[0] == "<" and word[-1] == ">"))


def _call(value: dict[str, Any]) -> tuple[str, Any] | None:
    """Return a call's tool and input, or None if the record is no call."""
    if value.get("type") == "local_shell_call":
        return "local_shell", value.get("action")
    tool = next((name for key in ("name", "tool", "toolName") if isinstance(name := value.get(key), str)), None)
    state = value.get("state")
    given = next((value[key] for key in _INPUTS if isinstance(value.get(key), dict | str)), None)
    if given is None and isinstance(state, dict):
        given = state.get("input")
    if tool is None or given is None:
        return None
    if isinstance(given, str):
        try:
            return tool, json.loads(given)
        except (ValueError, RecursionError):
            return tool, given
    return tool, given


def _texts(value: Any, key: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif depth <= MOST_DEPTH and isinstance(value, dict):
        for name, each in value.items():
            yield from _texts(each, str(name).lower(), depth + 1)
    elif depth <= MOST_DEPTH and isinstance(value, list):
        for each in value:
            yield from _texts(each, key, depth + 1)


def _model(record: Any) -> str:
    """Return the model that a record names, or an empty text."""
    inner = record.get("message", record.get("payload", record)) if isinstance(record, dict) else None
    model = inner.get("model") if isinstance(inner, dict) else None
    return model if isinstance(model, str) and model.isprintable() and len(model) <= 200 else ""


def _time(value: Any) -> int:
    """Return a time in nanoseconds since 1970, or 0. Numbers are seconds, or milliseconds if they are large."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000) * 1_000_000
        except (ValueError, OverflowError):
            return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e9 < value < 1e14:
        return 0
    return int(value * (1e9 if value < 1e11 else 1e6))
