"""The tables of commands, read from their files."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.classes.generation import quoted, wrapped

Row = tuple[tuple[str, ...], bytes]
MARKS = {"␤": b"\n", "␍": b"\r", "␀": b"\0", "⍽": "\u00a0".encode(), "␈": b"\b", "⎵": "\u200b".encode()}


def rows(name: str) -> list[Row]:
    """Classes and line of every row."""
    found = []
    for row in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines():
        if row and not row.startswith("#"):
            classes, bar, line = row.partition("| ")
            assert bar, row
            written = b"".join(MARKS.get(letter, letter.encode()) for letter in line)
            found.append((tuple(classes.strip().split(",")), written))
    return found


def varied(written: Iterable[Row]) -> Iterator[Row]:
    """Yield each row with its line in a shell, a wrapper or other quotes, drawn from the line: the same each time.

    Not a line that changes the directory, which a program in front keeps it from; nor one that affects more than a
    sandbox holds, which is unknown in a shell's words.
    """
    for classes, line in written:
        if b"cd" in line.split() or "host_escape_risk" in classes:
            continue
        text, draw = line.decode(), random.Random(line)
        yield classes, (quoted(text, draw) if draw.random() < 0.25 else next(wrapped(text, draw, 1))).encode()


def _once(found: Iterable[Row]) -> list[Row]:
    lines: dict[bytes, Row] = {}
    for row in found:
        lines.setdefault(row[1], row)
    return list(lines.values())


COMMANDS = rows("commands.txt")
EVASIONS = rows("evasions.txt")
HOSTILE_WRITTEN = rows("hostile.txt")
HOSTILE = _once([*HOSTILE_WRITTEN, *varied(HOSTILE_WRITTEN)])
"""Lines that do more than their program and operands say, each with the least classes."""
KNOWN_DISAGREEMENTS = [line for _classes, line in rows("hostile_known.txt")]
"""Lines of ``HOSTILE`` that are classed below their least class. The list may only become shorter."""
