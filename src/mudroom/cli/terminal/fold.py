"""Lines that fit a terminal, broken at blanks.

Rules of this file:
1. A command is never broken: its first half would run when the two lines are pasted. A command is ``mudroom`` with the
   words after it, up to a comma, a semicolon, a colon, a bracket that closes or the end of the line.
2. A line with a column in it (two blanks between words) is a row of a table, and stays.
3. A word that is longer than the line stays whole. The terminal breaks it, and joins it again when it is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_ENDS = (",", ";", ":", ")")
_WIDE = 1 << 16


def fold(text: str, columns: int, indent: str = "  ") -> str:
    """Return the text with each line of more than ``columns`` characters broken; what follows has the indentation of
    its line and ``indent``."""
    return "\n".join(
        line if visible(line) <= columns or "  " in line.strip() else _folded(line, columns, indent)
        for line in text.split("\n")
    )


def fold_beside(head: str, text: str, columns: int) -> str:
    """Return the text beside the head of its row; what follows of it stands in the same column."""
    return head + _folded(" " * visible(head) + text, columns, "").lstrip(" ")


def fold_row(line: str, cells: Sequence[str], columns: int, indent: str = "  ", *, breaks_cells: bool = True) -> str:
    """Return the row of a table: ``line`` if it fits. Otherwise its cells, of which one that does not fit begins a
    line of its own, indented. ``breaks_cells``: such a line is broken at blanks if it is too long."""
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
    """Return the characters of a text without its escape sequences (ECMA-48 SGR)."""
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
    """Yield the words; a command is one."""
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
    """Return the examples and remarks of a help text for this width. A paragraph is filled anew; what an example does
    stands in the line below it where both do not fit beside each other. A command in a paragraph is prose, and may be
    broken."""
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
    if not gap:  # a command alone is copied as a whole
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
"""Columns that suffice for a text beside its command."""
