"""A view as lines for a terminal, each with a style. Pure; the texts are safe already (``kinds/row.py:clean``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mudroom.ext.views.kinds.row import FileView, FileViewRow
from mudroom.typing import Literal

LineStyle = Literal["", "added", "removed", "warn", "dim", "head"]
ViewLine = tuple[str, LineStyle]
_SIGNS: dict[str, tuple[str, LineStyle]] = {"added": ("+", "added"), "removed": ("-", "removed"), "changed": ("~", "")}
_TEXT: dict[str, LineStyle] = {"+": "added", "-": "removed", "@": "head"}
_COLUMN = 40
"""Most columns to which labels are filled up."""


def view_lines(view: FileView) -> Iterator[ViewLine]:
    """Yield the lines of a view that has no problem; the first is its summary."""
    yield view.summary, "head"
    yield from _row_lines(view.rows, "")
    for note in view.notes:
        yield f"  ({note})", "dim"


def _row_lines(rows: Sequence[FileViewRow], margin: str) -> Iterator[ViewLine]:
    width = min(max((len(row.label) for row in rows), default=0), _COLUMN)
    for row in rows:
        values = " → ".join(filter(None, (row.before, row.after)))
        words = [f"{row.label:<{width}}", values, f"{'! ' * row.flagged}{row.note}" if row.note else ""]
        sign, style = _SIGNS[row.kind]
        yield f"{margin}{sign} {'  '.join(filter(None, words)).rstrip()}", "warn" if row.flagged else style
        for line in row.lines:
            yield f"{margin}    {line}", _TEXT.get(line[:1], "")
        yield from _row_lines(row.rows, f"{margin}    ")
