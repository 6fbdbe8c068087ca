"""The rows of a file that is shown by its parts, and what all kinds share.

A kind is a module with ``view(path, before, after)``. It returns a ``FileView`` or raises ``NoView`` with a sentence.
A side is None if there is no file. It imports all that it needs at its top: later no file can be opened
(``worker.py``).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mudroom.core.text.escaping import escape_line
from mudroom.core.text.hunk import hunks
from mudroom.core.text.plural import counted

MOST_ROWS = 500
"""Rows of a view, and of one row."""
MOST_LINES = 400
"""Lines of text below one row."""
WIDEST = 300
"""Characters of a label, a value and a note."""


RowKind = Literal["added", "removed", "changed"]


class FileViewRow(Struct):
    kind: RowKind
    label: str
    before: str = ""
    after: str = ""
    note: str = ""
    flagged: bool = False
    """Whether a reviewer should look at it first."""
    lines: list[str] = []
    """Of the text that changed, with their signs and ``@@`` headings."""
    rows: list[FileViewRow] = []


class FileView(Struct):
    kind: str
    """A key of ``KINDS``."""
    summary: str = ""
    rows: list[FileViewRow] = []
    notes: list[str] = []
    """What the rows leave out."""
    problem: str = ""
    """Why there is no view, as a sentence; the rows are then empty."""


class NoView(Exception):
    """The file has no such parts, or too many; the message is for the user."""


def clean(view: FileView) -> FileView:
    """Return a view whose texts are safe to display, and within the limits."""
    return FileView(
        _shown(view.kind),
        _shown(view.summary),
        [_clean_row(row) for row in view.rows[:MOST_ROWS]],
        [_shown(note) for note in view.notes[:MOST_ROWS]],
        _shown(view.problem),
    )


def _clean_row(row: FileViewRow) -> FileViewRow:
    label, before, after, note = map(_shown, (row.label, row.before, row.after, row.note))
    lines = [_shown(line.removesuffix("\n")) for line in row.lines[:MOST_LINES]]
    rows = [_clean_row(each) for each in row.rows[:MOST_ROWS]]
    return FileViewRow(row.kind, label, before, after, note, row.flagged, lines, rows)


def _shown(text: str) -> str:
    line = escape_line(text.encode("utf-8", "surrogatepass"), widest=WIDEST)
    return line.text + "…" * bool(line.cut)


def cut(rows: list[FileViewRow], notes: list[str], noun: str) -> list[FileViewRow]:
    """Return the rows within the limit, those that are flagged first, and note how many are left out."""
    rows = sorted(rows, key=lambda row: not row.flagged)
    if len(rows) > MOST_ROWS:
        notes.append(f"{counted(len(rows) - MOST_ROWS, noun)} more not listed")
    return rows[:MOST_ROWS]


def text_lines(before: bytes, after: bytes) -> list[str]:
    """Return the changed lines of a text, with signs; with headings if both sides have lines."""
    lines = [line for hunk in hunks(before, after) for line in (*[hunk.header] * bool(before and after), *hunk.lines)]
    more = [f"… {counted(len(lines) - MOST_LINES + 1, 'line')} more"] if len(lines) > MOST_LINES else []
    return [line.decode("utf-8", "replace") for line in lines[: MOST_LINES - len(more)]] + more


def kind_of_row(old: object, new: object) -> RowKind:
    """Return the kind of a row by its sides, of which one may be None."""
    return "added" if old is None else "removed" if new is None else "changed"


def summed(rows: list[FileViewRow], nothing: str) -> str:
    """Return how many rows are of each kind, and how many are flagged, or ``nothing`` if there is no row."""
    told = listed({word: sum(row.kind == word for row in rows) for word in ("changed", "added", "removed")}) or nothing
    flagged = sum(row.flagged for row in rows)
    return f"{told}; {flagged:,} to look at" if flagged else told


def listed(counts: dict[str, int]) -> str:
    """Return ``2 added, 1 removed`` of what is not zero."""
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
