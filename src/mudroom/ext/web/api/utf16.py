"""Text positions as browsers count them."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.text.escaping import Span


def utf16_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """Return character spans as spans in UTF-16 code units."""
    if text.isascii() or not spans or max(text) < "\U00010000":
        return list(spans)
    places = [0]
    for character in text:
        places.append(places[-1] + 1 + (character > "\uffff"))
    return [(places[start], places[end]) for start, end in spans]
