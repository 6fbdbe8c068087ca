"""One line of a file as pieces of text that can be put on a terminal. Pure.

Whatever is in the line, it stays one line, is read from left to right, and steers nothing (``core/text/escaping.py``).
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from mudroom.core.text.escaping import Span, escape_character, escape_line

TAB = 4
_ESCAPE = re.compile(r"(\\\\|\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[ntr]))")
"""As ``core.path.show_path`` writes them; a backslash of the name's own is written twice."""


class Piece(NamedTuple):
    text: str
    differs: bool = False
    """From the line that it is compared with."""
    odd: bool = False
    """It stands for something that cannot be shown as it is."""


def text_of_line(line: bytes) -> str:
    """What is shown of it, tabs as they are."""
    return escape_line(line.removesuffix(b"\n")).text


def pieces(line: bytes, spans: tuple[Span, ...] = ()) -> list[Piece]:
    """``line``: with its newline, if it has one. ``spans``: what differs, as characters of ``text_of_line``."""
    text, odd, cut, _until = escape_line(line.removesuffix(b"\n"))
    edges = sorted({0, len(text), *(edge for span in (*spans, *odd) for edge in span)})
    found: list[Piece] = []
    column = 0
    for start, end in itertools.pairwise(edges):
        part = _tabs(text[start:end], column)
        if not part.isprintable():  # no character of this Unicode: a terminal may know it, or take it for anything
            part = "".join(one if one.isprintable() else escape_character(one) for one in part)
        column += len(part)
        found.append(Piece(part, _is_in(start, spans), _is_in(start, odd)))
    if cut:
        found.append(Piece(f" … {cut:,} more bytes", odd=True))
    elif not line.endswith(b"\n"):
        found.append(Piece(" (no newline at the end)", odd=True))
    return found


def spelled(path: str, style: str) -> list[tuple[str, str]]:
    """What ``core.path.show_path`` has written, with styles: what stands for something that is not seen has its own."""
    return [
        (part, "odd" if number % 2 and part != "\\\\" else style)
        for number, part in enumerate(_ESCAPE.split(path))
        if part
    ]


def _is_in(at: int, spans: tuple[Span, ...]) -> bool:
    return any(start <= at < end for start, end in spans)


def _tabs(text: str, column: int) -> str:
    """With spaces for tabs, up to the next column that they lead to."""
    first, *others = text.split("\t")
    found = first
    for part in others:
        found += " " * (TAB - (column + len(found)) % TAB) + part
    return found
