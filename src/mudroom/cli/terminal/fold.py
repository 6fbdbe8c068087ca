"""Break lines at blanks so that they fit a terminal.

Rules of this file:
1. A command is never broken: pasting the two lines would run its first half. A command is ``mudroom`` with the words
   after it, up to a comma, a semicolon, a colon, a closing bracket or the end of the line.
2. A line with columns (two blanks between words) is a table row, and is not broken.
3. A word that is longer than the line stays whole. The terminal wraps it, and joins it again when it is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_ENDS = (",", ";", ":", ")")
_WIDE = 1 << 16


def fold(text: str, columns: int, indent: str = "  ") -> str:
    """Return the text with all lines over ``columns`` characters broken. Continuation lines have their line's
    indentation plus ``indent``."""
    return "\n".join(
        line if visible(line) <= columns or "  " in line.strip() else _folded(line, columns, indent)
        for line in text.split("\n")
    )


def fold_beside(head: str, text: str, columns: int) -> str:
    """Return ``head`` with ``text`` beside it. Continuation lines start in the text's column."""
    return head + _folded(" " * visible(head) + text, columns, "").lstrip(" ")


def fold_row(line: str, cells: Sequence[str], columns: int, indent: str = "  ", *, breaks_cells: bool = True) -> str:
    """Return ``line`` if it fits. Otherwise join its cells; a cell that does not fit begins a new indented line, which
    is itself broken at blanks if it is too long and ``breaks_cells`` is set."""
    if visible(line) <= columns:
        return line
    room = columns if breaks_cells else _WIDE
    lines = _folded(cells[0], room, indent).split("\n")
    for cell in filter(None, cells[1:]):
        if visible(lines[-1]) + 2 + visible(cell) <= columns:
            lines[-1] += f"  {cell}"
        else:
            lines += _folded(indent + cell, room, "").split("\n")
    return "\n".join(lines)


def visible(text: str) -> int:
    """Return the text's length without escape sequences (ECMA-48 SGR)."""
    if "\x1b[" not in text:
        return len(text)
    first, *styled = text.split("\x1b[")
    return len(first) + sum(len(part.partition("m")[2]) for part in styled)


def _folded(line: str, columns: int, indent: str, *, breaks_commands: bool = False) -> str:
    margin = line[: len(line) - len(line.lstrip(" "))]
    lines, current = [], margin
    rest = line[len(margin) :]
    for piece in rest.split(" ") if breaks_commands else _pieces(rest):
        if current.strip(" ") and visible(current) + 1 + visible(piece) > columns:
            lines.append(current)
            current = margin + indent
        current += f" {piece}" if current.strip(" ") else piece
    return "\n".join([*lines, current])


def _pieces(text: str) -> Iterator[str]:
    """Yield the words. A command counts as a word."""
    command: list[str] = []
    for word in text.split(" "):
        if command or word.lstrip("(") == "mudroom":
            command.append(word)
            if word.endswith(_ENDS):
                yield " ".join(command)
                command = []
        else:
            yield word
    if command:
        yield " ".join(command)


def fold_help(text: str, columns: int) -> str:
    """Return a help text's examples and remarks for this width. Paragraphs are refilled. An example's description moves
    to the next line if both do not fit beside each other. A command in a paragraph is prose, and may be broken."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        rows = paragraph.split("\n")
        if any(visible(row) > columns for row in rows) and not any(row.startswith(" ") for row in rows):
            lines += _folded(" ".join(rows), columns, "", breaks_commands=True).split("\n")
        else:
            lines += [part for row in rows for part in _folded_row(row, columns)]
        lines.append("")
    return "\n".join(lines[:-1])


def _folded_row(row: str, columns: int) -> list[str]:
    if visible(row) <= columns:
        return [row]
    margin = row[: len(row) - len(row.lstrip(" "))]
    command, gap, about = row.strip(" ").partition("  ")
    if not gap:  # a command without a description is copied as a whole
        return [row] if margin else _folded(row, columns, "  ", breaks_commands=True).split("\n")
    beside = len(row) - len(about.lstrip(" "))
    if columns - beside >= _BESIDE:
        first, *more = _folded(" " * beside + about.strip(" "), columns, "", breaks_commands=True).split("\n")
        return [row[:beside] + first.lstrip(" "), *more]
    return [
        margin + command,
        *_folded(f"{margin}    {about.strip(' ')}", columns, "", breaks_commands=True).split("\n"),
    ]


_BESIDE = 30
"""Minimum columns for a description beside its command."""
