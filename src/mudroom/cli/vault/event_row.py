"""A journal event as a line for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

from mudroom.cli.terminal.fold import fold_row
from mudroom.core.journal.event import Event, wall
from mudroom.core.journal.event_text import ROWS, event_words, gravity, printable

_STYLES = {1: "yellow", 2: "red"}
_WIDE = 1 << 16
_INDENT = " " * 6
"""Indentation of text that does not fit beside the number and the time."""


def line(event: Event, style: Callable[[str, str], str] = lambda text, _style: text, columns: int = _WIDE) -> str:
    """Return a line, or several if the terminal is narrow. ``style`` takes (text, style) and colours the text."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall(event) // 10**9))
    severity = gravity(event)
    name, fork = event.kind if event.kind in ROWS else printable(event.kind), printable(event.fork)
    words = event_words(event)

    def in_colour(text: str) -> str:
        return style(text, _STYLES[severity]) if severity else text

    head = f"{event.number:>4}  {style(when, 'dim')}"
    row = f"{head}  {in_colour(f'{name:<8}')} {fork or '-':<9} {'  '.join(words)}".rstrip()
    return fold_row(row, [head, in_colour(name), fork, *words], columns, _INDENT)
