"""A three-way merge as the page shows it: what is the same folded, each side's lines beside the others'; and what is
decided about it."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.merge.diff3 import Chunk, Lines, MergedText
from mudroom.core.merge.marker import why_not_mergeable
from mudroom.core.merge.read_resolution import read_choices
from mudroom.core.text.difference import line_of
from mudroom.core.text.escaping import shown, utf16
from mudroom.core.text.linediff import split_lines
from mudroom.core.text.worddiff import Budget, words
from mudroom.web import shape

AROUND = 3
"""Unchanged lines that are shown before and behind what is not the same."""
MOST = 2_000
"""Lines of one side of a region that are sent."""
EDITABLE = 256 << 10
"""Bytes of one side that are sent as they are, to be edited."""
REGIONS, LINES, BYTES = 1_000, 8_000, 8 << 20
"""Of all regions together. What is more than any of these is not sent at all: a browser would stand still, and of half
a file nobody can decide."""


def regions_of(merged: MergedText) -> list[shape.RegionShape] | None:
    """None: it is too much to be sent."""
    if len(merged.chunks) > REGIONS:
        return None
    found: list[shape.RegionShape] = []
    base = ours = theirs = 1
    number, budget, lines, size = 0, Budget(), 0, 0
    last = len(merged.chunks) - 1
    for place, chunk in enumerate(merged.chunks):
        if chunk.kind == "same":
            found.append(_same(chunk.ours, ours, before=place > 0, behind=place < last))
        else:
            number += chunk.kind == "conflict"
            found.append(_changed(chunk, (base, ours, theirs), number, budget))
        lines, size = lines + _lines(found[-1]), size + _bytes(found[-1])
        if lines > LINES or size > BYTES:
            return None
        base, ours, theirs = base + len(chunk.base), ours + len(chunk.ours), theirs + len(chunk.theirs)
    return found


def _lines(region: shape.RegionShape) -> int:
    return len(region.base) + len(region.ours) + len(region.theirs)


def _bytes(region: shape.RegionShape) -> int:
    """About as many as are sent of it."""
    shown = sum(len(line.text) for side in (region.base, region.ours, region.theirs) for line in side)
    return shown + sum(map(len, region.texts or ()))


def _same(lines: Lines, first: int, *, before: bool, behind: bool) -> shape.RegionShape:
    """Folded in the middle; at the ends of the file only towards what is not the same."""
    head, tail = AROUND * before, AROUND * behind
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
    """What is different between the two."""
    found = words([line.text for line in ours], [line.text for line in theirs], budget)
    for lines, marked in ((ours, found.old), (theirs, found.new)):
        for line, spans in zip(lines, marked, strict=True):
            line.words = utf16(line.text, spans)


def _texts(chunk: Chunk) -> tuple[str, str, str] | None:
    sides = [b"".join(side) for side in (chunk.base, chunk.ours, chunk.theirs)]
    if any(len(side) > EDITABLE for side in sides):
        return None
    base, ours, theirs = (side.decode() for side in sides)  # what is not UTF-8 is not merged (core/merge/marker.py)
    return base, ours, theirs


def result_of(merged: MergedText | None, content: bytes | None) -> shape.ResultShape | None:
    if content is None:
        return None
    is_text = not why_not_mergeable(content)
    choices = read_choices(merged, content) if merged is not None and is_text else None
    written = [line for one in choices or () if isinstance(one, list) for line in one]
    if sum(map(len, written)) > EDITABLE or any("\r" in line for line in written):
        choices = None
    text = editable(content)
    found = shape.ResultShape(len(content), choices, text=text)
    lines = split_lines(content) if is_text else []
    if choices is None:
        found.lines, found.more = shown_lines(lines[:MOST], 1), max(0, len(lines) - MOST)
    edited = lines if text is not None else [line.encode() for line in written] if choices is not None else []
    found.unseen = any(map(_is_unseen, edited))
    return found


def editable(content: bytes) -> str | None:
    """As it is; None: a browser would make something else of it, or take long."""
    if len(content) > EDITABLE or why_not_mergeable(content):
        return None
    return content.decode() if b"\r" not in content.replace(b"\r\n", b"") else None


def _is_unseen(line: bytes) -> bool:
    return bool(shown(line.removesuffix(b"\n").removesuffix(b"\r"), widest=10 * len(line) + 1).odd)


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
        odd=utf16(line.text, line.odd),
        cut=line.cut,
        ends=line.ends,
    )
