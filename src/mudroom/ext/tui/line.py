"""A file's line as text pieces for a terminal. Pure.

Whatever it contains, the result is a single line, reads from left to right, and sends no control codes
(``core/text/escaping.py``).
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from mudroom.core.text.escaping import Span, escape_line
from mudroom.core.text.invisible_characters import escaped

TAB = 4
_ESCAPE = re.compile(r"(\\\\|\\(?:x[0-9a-f]{2}|u\{[0-9a-f]+\}|[ntr]))")
"""The escapes written by ``core.tree.path.show_path``, which doubles a backslash in the name."""


class Piece(NamedTuple):
    text: str
    differs: bool = False
    """Whether the piece differs from the compared line."""
    odd: bool = False
    """Whether the piece is an escape for a character that cannot be shown."""


def text_of_line(line: bytes) -> str:
    """Return a line's shown text, with its tabs."""
    return escape_line(line.removesuffix(b"\n")).text


def pieces(line: bytes, spans: tuple[Span, ...] = ()) -> list[Piece]:
    """Return a line's pieces. ``line`` includes its newline, if any. ``spans``: the differing characters in
    ``text_of_line``."""
    text, odd, cut, _until = escape_line(line.removesuffix(b"\n"))
    edges = sorted({0, len(text), *(edge for span in (*spans, *odd) for edge in span)})
    result: list[Piece] = []
    column = 0
    for start, end in itertools.pairwise(edges):
        part = _expand_tabs(text[start:end], column)
        if not part.isprintable():  # not assigned in Python's Unicode: a terminal may know it, or may not
            part = escaped(part)
        column += len(part)
        result.append(Piece(part, _is_inside(start, spans), _is_inside(start, odd)))
    if cut:
        result.append(Piece(f" … {cut:,} more bytes", odd=True))
    elif not line.endswith(b"\n"):
        result.append(Piece(" (no newline at the end)", odd=True))
    return result


def styled_path(path: str, style: str) -> list[tuple[str, str]]:
    """Return a path from ``core.tree.path.show_path`` as styled pieces. Escapes have their own style."""
    return [
        (part, "odd" if number % 2 and part != "\\\\" else style)
        for number, part in enumerate(_ESCAPE.split(path))
        if part
    ]


def _is_inside(at: int, spans: tuple[Span, ...]) -> bool:
    return any(start <= at < end for start, end in spans)


def _expand_tabs(text: str, column: int) -> str:
    first, *others = text.split("\t")
    expanded = first
    for part in others:
        expanded += " " * (TAB - (column + len(expanded)) % TAB) + part
    return expanded
