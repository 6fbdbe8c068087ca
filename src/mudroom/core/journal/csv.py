"""Events as a table for spreadsheets: RFC 4180, and no cell is a formula. Pure.

Programs take a cell that begins with one of ``= + - @`` (or a tab or carriage return, or one of the four in full width)
for a formula, quoted or not; what a command's words say is written by whoever wrote the command. Such a cell gets an
apostrophe in front, by which they know a text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mudroom.core.journal.event import Event, data_of
from mudroom.core.journal.event_filter import action_of

COLUMNS = (
    "number", "time", "kind", "fork", "agent", "action", "command", "exit_code", "changed", "text", "data", "digest",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def header() -> str:
    return row(COLUMNS)


def sheet_row(event: Event, when: str, text: str) -> str:
    """``when``: its time, ISO 8601. ``text``: its line for people."""
    data = data_of(event)
    command = data.get("command", "")
    words = " ".join(map(str, command)) if isinstance(command, list) else command
    cells = (
        event.number, when, event.kind, event.fork, data.get("agent", ""), action_of(data), words,
        data.get("exit_code", ""), data.get("changed", ""), text, event.data, event.digest,
    )  # fmt: skip
    return row(cells)


def row(cells: Iterable[Any]) -> str:
    """One record with its CRLF."""
    return ",".join(_cell(cell) for cell in cells) + "\r\n"


def _cell(value: Any) -> str:
    if isinstance(value, int):  # a number is none, not even a negative one
        return str(value)
    text = "" if value is None else str(value)
    text = text.encode("utf-8", "replace").decode()
    if text.startswith(_FORMULA):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if any(one in text for one in ',"\r\n') else text
