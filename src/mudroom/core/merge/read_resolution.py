"""Reads the choices made in a merge back from the resulting text, so that they need not be stored.

Rules:

1. ``resolve_text(merged, read_choices(merged, text)) == text``, or there are no such choices: then the text was made in
   another way, and is shown as it is.
2. If sides explain the whole text, sides are returned. Otherwise replacing lines are returned, at as few conflicts as a
   short search finds.

The parts without a conflict must occur in the text in order, each at the beginning of a line. The text between two such
parts resolved a conflict. A search from the end gives each part a latest position from which all later parts still fit.
Every reading that stays before these positions therefore reaches the end, and following a few readings is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.merge.diff3 import Chunk, MergedText
from mudroom.core.merge.marker import chosen_lines
from mudroom.core.merge.resolution_words import Choice, Side
from mudroom.core.merge.resolve_hunks import editable_lines, resolve_text, side_at
from mudroom.core.text.linediff import split_lines
from mudroom.typing import NamedTuple, get_args

WAYS = 32
"""Most readings that are followed at the same time."""
NEAR = 4096
"""Bytes in which replacing lines are searched if a side fits as well."""


class _Way(NamedTuple):
    """A reading of the text up to a position."""

    written: int
    """Number of conflicts so far that no side explains."""
    piece: Side | bytes
    before: _Way | None


class _Place(NamedTuple):
    sides: Sequence[tuple[Side, bytes]]
    behind: bytes
    """The text between this conflict and the next."""
    latest: int
    """Latest position of ``behind``; for the last conflict, its exact position."""
    is_last: bool


def read_choices(merged: MergedText, content: bytes) -> list[Choice] | None:
    """Return a side or lines for each conflict, in order; None if the text was not made by resolving the conflicts."""
    places = [chunk for chunk in merged.chunks if chunk.kind == "conflict"]
    choices: list[Choice] = []
    for chunk, piece in zip(places, _pieces(merged, places, content), strict=False):
        choice = piece if isinstance(piece, str) else _texts(chunk, piece, is_last=chunk is merged.chunks[-1])
        if choice is None:
            return None
        choices.append(choice)
    return choices if len(choices) == len(places) and resolve_text(merged, choices) == content else None


def _texts(chunk: Chunk, piece: bytes, *, is_last: bool) -> list[str] | None:
    return editable_lines(side_at(chunk), split_lines(piece), keeps_end=is_last)


def _pieces(merged: MergedText, places: Sequence[Chunk], content: bytes) -> list[Side | bytes]:
    """Return the side or text that resolves each conflict; an empty list if the text cannot be read so."""
    first, *rest = _between(merged)
    latest = _latest(rest, content)
    if not rest or not content.startswith(first) or not latest or latest[0] < len(first):
        return []
    ways: dict[int, _Way | None] = {len(first): None}
    for chunk, behind, position in zip(places, rest, latest, strict=True):
        is_last = chunk is merged.chunks[-1]
        sides = [(side, b"".join(chosen_lines(chunk, side, is_last=is_last))) for side in get_args(Side)]
        ways = _further(ways, content, _Place(sides, behind, position, chunk is places[-1]))
    way = next(iter(ways.values()))
    pieces: list[Side | bytes] = []
    while way is not None:
        pieces.append(way.piece)
        way = way.before
    return pieces[::-1]


def _between(merged: MergedText) -> list[bytes]:
    """Return the texts without a conflict: before the first conflict, between each and the next, after the last."""
    parts: list[list[bytes]] = [[]]
    for chunk in merged.chunks:
        if chunk.kind == "conflict":
            parts.append([])
        else:
            parts[-1] += chunk.outcome
    return [b"".join(lines) for lines in parts]


def _latest(rest: Sequence[bytes], content: bytes) -> list[int]:
    """Return the latest position of each part; an empty list if they do not all occur."""
    positions: list[int] = []
    # Reversed, so that ``find`` searches from the end: only ``find`` takes at most linear time for hostile input
    # (https://github.com/python/cpython/blob/v3.11.0/Objects/stringlib/stringlib_find_two_way_notes.txt).
    reversed_text = content[::-1] + b"\n"
    end = len(content)
    for number, piece in enumerate(reversed(rest)):
        offset = reversed_text.find(piece[::-1] + b"\n", len(content) - end) if piece else len(content) - end
        if offset < 0 or (number == 0 and offset):
            return []
        end = len(content) - offset - len(piece)
        positions.append(end)
    return positions[::-1]


def _further(ways: dict[int, _Way | None], content: bytes, place: _Place) -> dict[int, _Way | None]:
    """Return the readings extended by one conflict, by the position after the text that follows it."""
    readings: dict[int, _Way] = {}
    for start, way in ways.items():
        written = way.written if way is not None else 0
        ends: dict[int, _Way] = {}
        for side, text in place.sides:
            end = start + len(text)
            if content.startswith(text, start) and _fits(end, content, place):
                ends.setdefault(end, _Way(written, side, way))
        end_of_lines = _end_of_lines(start, content, place, near=bool(ends))
        if end_of_lines >= 0:
            ends.setdefault(end_of_lines, _Way(written + 1, content[start:end_of_lines], way))
        for end, reading in ends.items():
            best_known = readings.get(end + len(place.behind))
            if best_known is None or reading.written < best_known.written:
                readings[end + len(place.behind)] = reading
    best = sorted(readings.items(), key=lambda item: item[1].written)[:WAYS]
    return dict(best)


def _fits(end: int, content: bytes, place: _Place) -> bool:
    if place.is_last:
        return end == place.latest
    return end <= place.latest and content.startswith(place.behind, end)


def _end_of_lines(start: int, content: bytes, place: _Place, *, near: bool) -> int:
    """Return the end of replacing lines, where the text behind the conflict can begin; negative if there is none within
    reach."""
    if place.is_last:
        return place.latest
    if content.startswith(place.behind, start):
        return start
    until = place.latest + len(place.behind)
    if near:
        until = min(until, start + NEAR + len(place.behind))
    newline = content.find(b"\n" + place.behind, start, until)
    return newline + 1 if newline >= 0 else -1
