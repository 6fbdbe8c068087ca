"""The tables of commands, read from their files."""

from __future__ import annotations

from pathlib import Path

MARKS = {"␤": b"\n", "␍": b"\r", "␀": b"\0", "⍽": "\u00a0".encode(), "␈": b"\b", "⎵": "\u200b".encode()}


def rows(name: str) -> list[tuple[tuple[str, ...], bytes]]:
    """Classes and line of every row."""
    found = []
    for row in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines():
        if row and not row.startswith("#"):
            classes, bar, line = row.partition("| ")
            assert bar, row
            written = b"".join(MARKS.get(letter, letter.encode()) for letter in line)
            found.append((tuple(classes.strip().split(",")), written))
    return found


COMMANDS = rows("commands.txt")
EVASIONS = rows("evasions.txt")
HOSTILE = rows("hostile.txt")
"""Lines that do more than their program and operands say, each with the least classes."""
KNOWN_DISAGREEMENTS = [line for _classes, line in rows("hostile_known.txt")]
"""Lines of ``HOSTILE`` that are classed below their least class. The list may only become shorter."""
