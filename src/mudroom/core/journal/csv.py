"""Events as CSV for spreadsheets (RFC 4180), with formulas disabled. Pure.

Spreadsheet programs treat a cell as a formula, even if quoted, if it begins with ``=``, ``+``, ``-``, ``@``, one of
their full-width forms, a tab or a carriage return. A command's author controls its text. So such a cell gets a leading
apostrophe, which marks it as text.
"""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.journal.event import Event, data_of
from mudroom.core.journal.event_filter import action_of
from mudroom.typing import Any

COLUMNS = (
    "number", "time", "kind", "fork", "agent", "action", "command", "exit_code", "changed", "text", "data", "digest",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def header() -> str:
    return row(COLUMNS)


def sheet_row(event: Event, when: str, text: str) -> str:
    """Return an event as a row. ``when``: its time in ISO 8601. ``text``: its line for display."""
    data = data_of(event)
    command = data.get("command", "")
    words = " ".join(map(str, command)) if isinstance(command, list) else command
    cells = (
        event.number, when, event.kind, event.fork, data.get("agent", ""), action_of(data), words,
        data.get("exit_code", ""), data.get("changed", ""), text, event.data, event.digest,
    )  # fmt: skip
    return row(cells)


def row(cells: Iterable[Any]) -> str:
    """Return one record, terminated by CRLF."""
    return ",".join(_cell(cell) for cell in cells) + "\r\n"


def _cell(value: Any) -> str:
    if isinstance(value, int):  # a number is not a formula, even if negative
        return str(value)
    text = "" if value is None else str(value)
    text = text.encode("utf-8", "replace").decode()
    if text.startswith(_FORMULA):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if any(character in text for character in ',"\r\n') else text
