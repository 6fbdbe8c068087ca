"""An event of the journal as one line for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

from mudroom.core.journal.event import Event, wall
from mudroom.core.journal.event_text import ROWS, event_words, gravity, printable

_STYLES = {1: "yellow", 2: "red"}


def line(event: Event, style: Callable[[str, str], str] = lambda text, _style: text) -> str:
    """Return the line. ``style`` colours a text: (text, style)."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall(event) // 10**9))
    severity = gravity(event)
    kind = f"{event.kind if event.kind in ROWS else printable(event.kind):<8}"
    head = f"{event.number:>4}  {style(when, 'dim')}  {style(kind, _STYLES[severity]) if severity else kind}"
    return (f"{head} {printable(event.fork) or '-':<9} " + "  ".join(event_words(event))).rstrip()
