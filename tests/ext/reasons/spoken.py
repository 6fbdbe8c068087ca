"""A conversation in a fork's own part of the home, as an agent leaves it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mudroom.vault.store.fork import Fork


def speak(fork: Fork, *records: Any, agent: str = "claude", raw: bytes = b"") -> Path:
    """Write claude's conversation into a fork and return its file."""
    store = Path(os.fsdecode(fork.path)) / "home" / agent
    file = store / "0" / "projects" / "p" / "s.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    saved = {"transcripts": [".claude/projects/*/*.jsonl"], "places": [[".claude", "", True]], "home": "/h"}
    (store / "store").write_text(json.dumps(saved))
    file.write_bytes(b"\n".join(json.dumps(record).encode() for record in records) + raw)
    return file


def turn(time: float, prompt: str, tool: str, **given: Any) -> list[Any]:
    """Return the records of one prompt and one call. ``time``: in seconds since 1970."""
    content = [{"type": "tool_use", "id": "t", "name": tool, "input": given}]
    return [
        {"type": "user", "timestamp": time, "message": {"role": "user", "content": prompt}},
        {"timestamp": time + 0.001, "message": {"role": "assistant", "model": "m-1", "content": content}},
    ]
