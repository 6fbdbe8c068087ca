"""A fork's background command as a value: start, end, and the JSON form."""

from __future__ import annotations

from mudroom.typing import Any, NamedTuple

SCHEMA = "mudroom.background/1"


class BackgroundStart(NamedTuple):
    id: str
    """Unique in the vault; letters and digits only."""
    fork: str
    command: tuple[bytes, ...]
    cwd: bytes
    """As the command sees it."""
    time: int
    """Nanoseconds since 1970."""
    keeper: int
    """Pid of the process that holds the command. The command ends with it."""
    level: int = 1
    agent: str = ""
    timeout: float | None = None
    """Time limit in seconds; None: no limit."""
    companion: int = 0
    """Pid of the agent's process with whose end it ends, and which needs it for nothing but what others leave; 0: none.
    Who needs the fork at rest may end it."""


class BackgroundEnd(NamedTuple):
    exit_code: int
    """128 + the signal number if a signal ended the command."""
    signal: int | None
    timed_out: bool
    time: int
    """Nanoseconds since 1970."""


def to_json(started: BackgroundStart, ended: BackgroundEnd | None) -> dict[str, Any]:
    """Return the JSON form. Bytes that are not UTF-8 become surrogates (PEP 383), so that no byte is lost."""
    row: dict[str, Any] = {
        "schema": SCHEMA,
        "id": started.id,
        "fork": started.fork,
        "agent": started.agent,
        "command": [_text(word) for word in started.command],
        "cwd": _text(started.cwd),
        "started": started.time,
        "keeper": started.keeper,
        "level": started.level,
        "timeout": started.timeout,
        "companion": started.companion,
        "state": "running" if ended is None else "ended",
    }
    if ended is not None:
        row |= {
            "exit_code": ended.exit_code,
            "signal": ended.signal,
            "timed_out": ended.timed_out,
            "ended": ended.time,
        }
    return row


def from_json(data: dict[str, Any]) -> tuple[BackgroundStart, BackgroundEnd | None]:
    """Parse the JSON form. Raise KeyError, TypeError or ValueError if it is not valid."""
    if data["schema"] != SCHEMA:
        raise ValueError("written by another mudroom")
    started = BackgroundStart(
        str(data["id"]),
        str(data["fork"]),
        tuple(_bytes(word) for word in data["command"]),
        _bytes(data["cwd"]),
        int(data["started"]),
        int(data["keeper"]),
        int(data["level"]),
        str(data["agent"]),
        data["timeout"],
        int(data.get("companion", 0)),
    )
    if "ended" not in data:
        return started, None
    signal = data["signal"]
    return started, BackgroundEnd(int(data["exit_code"]), signal, bool(data["timed_out"]), int(data["ended"]))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")
