"""Edits to a text by exact replacement, all or none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from mudroom.ext.agents.tools.error import ToolError
from mudroom.typing import NamedTuple

_NAMED = 5
"""Most lines that an error names."""


class Edit(NamedTuple):
    old: bytes
    new: bytes
    replace_all: bool = False


class Edited(NamedTuple):
    content: bytes
    replacements: int


def edited(before: bytes, edits: Sequence[Edit], shown: str) -> Edited:
    """Return the content after all edits, made one after another. In a file whose lines all end in CRLF, a plain
    newline in an edit means CRLF. ``shown``: the file's path, for errors. Raise ToolError for the first edit that does
    not fit; then none is made."""
    content, count = before, 0
    for index, edit in enumerate(edits):
        which = f"edit {index + 1} of {len(edits)}: " if len(edits) > 1 else ""
        content, made = _replaced(content, edit, f"{which}{shown}")
        count += made
    return Edited(content, count)


def _replaced(before: bytes, edit: Edit, shown: str) -> tuple[bytes, int]:
    old, new = edit.old, edit.new
    if b"\r\n" in before and before.count(b"\r\n") == before.count(b"\n"):
        old, new = (text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for text in (old, new))
    if not old:
        raise ToolError(f"{shown}: old_string is empty", "write creates a file or replaces all of it")
    if old == new:
        raise ToolError(f"{shown}: old_string and new_string are the same", "nothing has to be changed here")
    count = before.count(old)
    if not count:
        raise ToolError(f"{shown}: old_string was not found", _nearest(before, old))
    if count > 1 and not edit.replace_all:
        lines = list(islice(_lines_of(before, old), _NAMED + 1))
        where = ", ".join(map(str, lines[:_NAMED])) + (", …" if len(lines) > _NAMED else "")
        raise ToolError(
            f"{shown}: old_string was found {count} times, at lines {where}",
            "add lines around it until it is unique, or set replace_all",
            found=count,
        )
    return before.replace(old, new), count


def _lines_of(content: bytes, search: bytes) -> Sequence[int]:
    lines: list[int] = []
    at, number = 0, 1
    while len(lines) <= _NAMED and (found := content.find(search, at)) >= 0:
        number += content.count(b"\n", at, found)
        lines.append(number)
        number += search.count(b"\n")
        at = found + len(search)
    return lines


def _nearest(content: bytes, old: bytes) -> str:
    """Return advice about a missing text, with the lines that equal its first line, if there are any."""
    first = next((line.strip() for line in old.split(b"\n") if line.strip()), b"")
    if first:
        numbers = (number for number, line in enumerate(content.split(b"\n"), 1) if line.strip() == first)
        near = list(islice(numbers, 3))
        if near:
            where = ", ".join(map(str, near))
            return (
                f"its first line, with other indentation or other lines below it, is at line {where}: read the file"
                " there and copy the text exactly, without line numbers"
            )
    return "read the file again: it may have changed, or the text differs in spaces"
