"""A command in the background of a fork, as a value: what was started, how it ended, and both as JSON."""

from __future__ import annotations

from typing import Any, NamedTuple

SCHEMA = "mudroom.background/1"


class BackgroundStart(NamedTuple):
    id: str
    """Unique in the vault; a plain word."""
    fork: str
    command: tuple[bytes, ...]
    cwd: bytes
    """As the command sees it."""
    time: int
    """Nanoseconds since 1970."""
    keeper: int
    """The pid of the process that holds it: it ends with that."""
    level: int = 1
    agent: str = ""
    timeout: float | None = None
    """Seconds that it may take; None: no limit."""


class BackgroundEnd(NamedTuple):
    exit_code: int
    """128 + the signal for one that a signal has ended."""
    signal: int | None
    timed_out: bool
    time: int
    """Nanoseconds since 1970."""


def to_json(started: BackgroundStart, ended: BackgroundEnd | None) -> dict[str, Any]:
    """Any bytes are kept: what is no UTF-8 becomes surrogates (PEP 383)."""
    found: dict[str, Any] = {
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
        "state": "running" if ended is None else "ended",
    }
    if ended is not None:
        found |= {
            "exit_code": ended.exit_code,
            "signal": ended.signal,
            "timed_out": ended.timed_out,
            "ended": ended.time,
        }
    return found


def from_json(data: dict[str, Any]) -> tuple[BackgroundStart, BackgroundEnd | None]:
    """Raises KeyError, TypeError or ValueError if that is something else."""
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
    )
    if "ended" not in data:
        return started, None
    signal = data["signal"]
    return started, BackgroundEnd(int(data["exit_code"]), signal, bool(data["timed_out"]), int(data["ended"]))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")
