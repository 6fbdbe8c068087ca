"""A three-way merge as the page shows it, with unchanged lines folded; and a decision's result."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.merge.diff3 import Chunk, Lines, MergedText
from mudroom.core.merge.marker import why_not_mergeable
from mudroom.core.merge.read_resolution import read_choices
from mudroom.core.text.escaping import Span, escape_line
from mudroom.core.text.linediff import split_lines
from mudroom.ext.review.core.difference import line_of
from mudroom.ext.review.core.worddiff import Budget, diff_words
from mudroom.ext.web import shape


def utf16_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """Return character spans as spans in UTF-16 code units."""
    if text.isascii() or not spans or max(text) < "\U00010000":
        return list(spans)
    places = [0]
    for character in text:
        places.append(places[-1] + 1 + (character > "\uffff"))
    return [(places[start], places[end]) for start, end in spans]


CONTEXT_LINES = 3
"""Unchanged lines shown before and after a change."""
MOST = 2_000
"""Maximum lines sent for each side of a region."""
EDITABLE = 256 << 10
"""Maximum bytes per side sent unchanged, for editing."""
REGIONS, LINES, BYTES = 1_000, 8_000, 8 << 20
"""Limits for all regions together. A larger merge is not sent at all: a browser would hang, and half a file cannot be
decided."""


def regions_of(merged: MergedText) -> list[shape.RegionShape] | None:
    """Return the regions; None if they are too large to be sent."""
    if len(merged.chunks) > REGIONS:
        return None
    regions: list[shape.RegionShape] = []
    base = ours = theirs = 1
    number, budget, lines, size = 0, Budget(), 0, 0
    last = len(merged.chunks) - 1
    for place, chunk in enumerate(merged.chunks):
        if chunk.kind == "same":
            regions.append(_same(chunk.ours, ours, before=place > 0, after=place < last))
        else:
            number += chunk.kind == "conflict"
            regions.append(_changed(chunk, (base, ours, theirs), number, budget))
        lines, size = lines + _lines(regions[-1]), size + _bytes(regions[-1])
        if lines > LINES or size > BYTES:
            return None
        base, ours, theirs = base + len(chunk.base), ours + len(chunk.ours), theirs + len(chunk.theirs)
    return regions


def _lines(region: shape.RegionShape) -> int:
    return len(region.base) + len(region.ours) + len(region.theirs)


def _bytes(region: shape.RegionShape) -> int:
    """Return roughly how many bytes are sent."""
    shown = sum(len(line.text) for side in (region.base, region.ours, region.theirs) for line in side)
    return shown + sum(map(len, region.texts or ()))


def _same(lines: Lines, first: int, *, before: bool, after: bool) -> shape.RegionShape:
    """Return unchanged lines, folded in the middle. At the beginning and end of the file, context is shown only on the
    side towards the change."""
    head, tail = CONTEXT_LINES * before, CONTEXT_LINES * after
    hidden = len(lines) - head - tail
    if hidden <= 1:
        return shape.RegionShape("same", [], shown_lines(lines, first), [])
    end = first + len(lines) - tail
    shown = [*shown_lines(lines[:head], first), *shown_lines(lines[len(lines) - tail :], end)]
    return shape.RegionShape("same", [], shown, [], hidden=hidden)


def _changed(chunk: Chunk, firsts: tuple[int, int, int], number: int, budget: Budget) -> shape.RegionShape:
    sides = {
        "ours": (chunk.base, chunk.ours, ()),
        "theirs": (chunk.base, (), chunk.theirs),
        "both": (chunk.base, chunk.ours, ()),
        "conflict": (chunk.base, chunk.ours, chunk.theirs),
    }[chunk.kind]
    base, ours, theirs = (shown_lines(side[:MOST], first, "+") for side, first in zip(sides, firsts, strict=True))
    for line in base:
        line.kind, line.old, line.new = "-", line.new, 0
    if chunk.kind == "conflict":
        _mark(ours, theirs, budget)
    more = [max(0, len(side) - MOST) for side in sides]
    region = shape.RegionShape(chunk.kind, base, ours, theirs, more=(more[0], more[1], more[2]))
    if chunk.kind == "conflict":
        region.number, region.texts = number, _texts(chunk)
    return region


def _mark(ours: list[shape.LineShape], theirs: list[shape.LineShape], budget: Budget) -> None:
    """Mark the words that differ between the two."""
    differing = diff_words([line.text for line in ours], [line.text for line in theirs], budget)
    for lines, marked in ((ours, differing.old), (theirs, differing.new)):
        for line, spans in zip(lines, marked, strict=True):
            line.words = utf16_spans(line.text, spans)


def _texts(chunk: Chunk) -> tuple[str, str, str] | None:
    sides = [b"".join(side) for side in (chunk.base, chunk.ours, chunk.theirs)]
    if any(len(side) > EDITABLE for side in sides):
        return None
    base, ours, theirs = (side.decode() for side in sides)  # other encodings are not merged (core/merge/marker.py)
    return base, ours, theirs


def result_of(merged: MergedText | None, content: bytes | None) -> shape.ResultShape | None:
    if content is None:
        return None
    is_text = not why_not_mergeable(content)
    choices = read_choices(merged, content) if merged is not None and is_text else None
    own_lines = [line for choice in choices or () if isinstance(choice, list) for line in choice]
    if sum(map(len, own_lines)) > EDITABLE or any("\r" in line for line in own_lines):
        choices = None
    text = editable(content)
    result = shape.ResultShape(len(content), choices, text=text)
    lines = split_lines(content) if is_text else []
    if choices is None:
        result.lines, result.more = shown_lines(lines[:MOST], 1), max(0, len(lines) - MOST)
    edited = lines if text is not None else [line.encode() for line in own_lines] if choices is not None else []
    result.unseen = any(map(_is_unseen, edited))
    return result


def editable(content: bytes) -> str | None:
    """Return the text for editing; None if a browser would change it, or take long."""
    if len(content) > EDITABLE or why_not_mergeable(content):
        return None
    return content.decode() if b"\r" not in content.replace(b"\r\n", b"") else None


def _is_unseen(line: bytes) -> bool:
    return bool(escape_line(line.removesuffix(b"\n").removesuffix(b"\r"), widest=10 * len(line) + 1).odd)


def shown_lines(lines: Sequence[bytes], first: int, kind: str = " ") -> list[shape.LineShape]:
    return [_line(raw, kind, first + index) for index, raw in enumerate(lines)]


def _line(raw: bytes, kind: str, number: int) -> shape.LineShape:
    line = line_of(raw, " ", number, number)
    old = number if kind == " " else 0
    return shape.LineShape(
        " " if kind == " " else "+",
        old,
        number,
        line.text,
        odd=utf16_spans(line.text, line.odd),
        cut=line.cut,
        ends=line.ends,
    )
