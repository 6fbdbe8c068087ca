"""What was chosen in a merge, read from the text that came of it: nobody has to keep it beside the text.

Rules of this file:

1. ``resolved(merged, choices_of(merged, text)) == text``, or there are no such choices: then the text was made in
   another way, and is shown as it is.
2. If sides explain all of it, sides are told; else lines by hand at as few places as are found without a long search.

What is not in conflict has to stand in the text, piece by piece and each at the beginning of a line; what lies between
two of these pieces was made of a conflict. Looked for from the end, each piece has a latest place from which the rest
can still follow. So every way that goes no further than that leads to the end, and a few of them are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

from mudroom.core.merge.diff3 import Chunk, MergedText
from mudroom.core.merge.marker import chosen
from mudroom.core.merge.resolution_words import Choice, Side
from mudroom.core.merge.resolve_hunks import resolved, side_at, texts_of
from mudroom.core.text.linediff import split_lines

WAYS = 32
"""Readings of the text up to a place that are followed."""
NEAR = 4096
"""Bytes in which other lines are looked for where a side's fit, too."""


class _Way(NamedTuple):
    """One reading of the text up to here."""

    written: int
    """Places that no side explains."""
    piece: Side | bytes
    before: _Way | None


class _Place(NamedTuple):
    sides: Sequence[tuple[Side, bytes]]
    behind: bytes
    """What follows it and is not in conflict."""
    latest: int
    """Where that begins at the latest; of the last place, exactly there."""
    is_last: bool


def choices_of(merged: MergedText, content: bytes) -> list[Choice] | None:
    """For each conflict in order a side, or lines; None: the text was not made place by place."""
    places = [chunk for chunk in merged.chunks if chunk.kind == "conflict"]
    found: list[Choice] = []
    for chunk, piece in zip(places, _pieces(merged, places, content), strict=False):
        choice = piece if isinstance(piece, str) else _texts(chunk, piece, is_last=chunk is merged.chunks[-1])
        if choice is None:
            return None
        found.append(choice)
    return found if len(found) == len(places) and resolved(merged, found) == content else None


def _texts(chunk: Chunk, piece: bytes, *, is_last: bool) -> list[str] | None:
    return texts_of(side_at(chunk), split_lines(piece), keeps_end=is_last)


def _pieces(merged: MergedText, places: Sequence[Chunk], content: bytes) -> list[Side | bytes]:
    """Of the text, one for each place; none if it cannot be read."""
    first, *rest = _between(merged)
    latest = _latest(rest, content)
    if not rest or not content.startswith(first) or not latest or latest[0] < len(first):
        return []
    ways: dict[int, _Way | None] = {len(first): None}
    for chunk, behind, at in zip(places, rest, latest, strict=True):
        is_last = chunk is merged.chunks[-1]
        sides = [(side, b"".join(chosen(chunk, side, is_last=is_last))) for side in get_args(Side)]
        ways = _further(ways, content, _Place(sides, behind, at, chunk is places[-1]))
    way = next(iter(ways.values()))
    found: list[Side | bytes] = []
    while way is not None:
        found.append(way.piece)
        way = way.before
    return found[::-1]


def _between(merged: MergedText) -> list[bytes]:
    """What is not in conflict: before the first place, between each and the next, behind the last."""
    found: list[list[bytes]] = [[]]
    for chunk in merged.chunks:
        if chunk.kind == "conflict":
            found.append([])
        else:
            found[-1] += chunk.outcome
    return [b"".join(lines) for lines in found]


def _latest(rest: Sequence[bytes], content: bytes) -> list[int]:
    """Where each of them begins at the latest; empty: they are not there.

    Looked for in the text turned round: only ``find`` takes no more than linear time, whatever somebody has made up
    (https://github.com/python/cpython/blob/v3.11.0/Objects/stringlib/stringlib_find_two_way_notes.txt).
    """
    found: list[int] = []
    turned = content[::-1] + b"\n"
    end = len(content)
    for number, piece in enumerate(reversed(rest)):
        at = turned.find(piece[::-1] + b"\n", len(content) - end) if piece else len(content) - end
        if at < 0 or (number == 0 and at):
            return []
        end = len(content) - at - len(piece)
        found.append(end)
    return found[::-1]


def _further(ways: dict[int, _Way | None], content: bytes, place: _Place) -> dict[int, _Way | None]:
    """By where what is behind the place ends."""
    found: dict[int, _Way] = {}
    for start, way in ways.items():
        written = way.written if way is not None else 0
        ends: dict[int, _Way] = {}
        for side, text in place.sides:
            end = start + len(text)
            if content.startswith(text, start) and _fits(end, content, place):
                ends.setdefault(end, _Way(written, side, way))
        other = _end_of_lines(start, content, place, near=bool(ends))
        if other >= 0:
            ends.setdefault(other, _Way(written + 1, content[start:other], way))
        for end, one in ends.items():
            known = found.get(end + len(place.behind))
            if known is None or one.written < known.written:
                found[end + len(place.behind)] = one
    best = sorted(found.items(), key=lambda item: item[1].written)[:WAYS]
    return dict(best)


def _fits(end: int, content: bytes, place: _Place) -> bool:
    if place.is_last:
        return end == place.latest
    return end <= place.latest and content.startswith(place.behind, end)


def _end_of_lines(start: int, content: bytes, place: _Place, *, near: bool) -> int:
    """Of those up to the next place where what is behind may begin; negative: there is none nearby."""
    if place.is_last:
        return place.latest
    if content.startswith(place.behind, start):
        return start
    until = place.latest + len(place.behind)
    if near:
        until = min(until, start + NEAR + len(place.behind))
    at = content.find(b"\n" + place.behind, start, until)
    return at + 1 if at >= 0 else -1
