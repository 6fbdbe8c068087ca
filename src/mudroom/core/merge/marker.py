"""Conflict markers: write unresolved conflicts into a text, and recognise them.

The format is git's (git-merge(1), "HOW CONFLICTS ARE PRESENTED"), in its three styles:

    <<<<<<< ours             merge    ours and theirs, without common lines at either end
    ours                     diff3    both whole sides, and the base between them, as here
    ||||||| base             zdiff3   as merge, with the base
    base
    =======
    theirs
    >>>>>>> theirs
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mudroom.core.merge.diff3 import Chunk, MergedText
from mudroom.core.merge.resolution_words import Side
from mudroom.typing import Literal, NamedTuple

Style = Literal["merge", "diff3", "zdiff3"]
LIMIT = 32 * 1024 * 1024
"""Bytes. A larger text is not merged."""
LINES = 400_000
"""A text with more lines is not merged: comparing a million lines takes seconds, and most of a gigabyte of memory."""
SIZE = 7
"""Marker length in characters, as in git."""


class Labels(NamedTuple):
    ours: bytes = b"ours"
    base: bytes = b"base"
    theirs: bytes = b"theirs"


def why_not_mergeable(data: bytes, limit: int = LIMIT) -> str:
    """Return why a text cannot be merged line by line, or an empty string if it can."""
    if len(data) > limit:
        return "it is too large"
    if data.count(b"\n") > LINES:
        return "it has too many lines"
    if b"\0" in data:
        return "it is binary"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return ""


def has_markers(data: bytes, size: int = SIZE) -> bool:
    """Return whether a text contains conflict markers with this size: lines that begin with exactly ``size`` times
    ``<`` or ``>``."""
    return re.search(rb"^(<{%d}|>{%d})( |\r?$)" % (size, size), data, re.MULTILINE) is not None


def marker_size(merged: MergedText) -> int:
    """Return the smallest marker size, from SIZE on, that does not occur in the texts."""
    used: set[int] = set()
    for chunk in merged.chunks:
        signs = b"<|=>" if chunk.kind == "conflict" else b"<|>"
        used.update(_length(line, signs) for side in chunk[1:] for line in side)
    return next(size for size in range(SIZE, SIZE + len(used) + 1) if size not in used)


def resolve(merged: MergedText, choices: Mapping[int, Side | bytes]) -> MergedText:
    """Resolve the conflicts in ``choices``, which are numbered from 0. Other conflicts are kept."""
    chunks: list[Chunk] = []
    number = 0
    for place, chunk in enumerate(merged.chunks):
        if chunk.kind == "conflict":
            choice = choices.get(number)
            number += 1
            if choice is not None:
                lines = chosen_lines(chunk, choice, is_last=place + 1 == len(merged.chunks))
                chunk = Chunk("both", chunk.base, lines, lines)
        chunks.append(chunk)
    return MergedText(tuple(chunks))


def chosen_lines(chunk: Chunk, choice: Side | bytes, *, is_last: bool) -> tuple[bytes, ...]:
    """Return the lines that resolve a conflict. Unless ``is_last`` (the chunk ends the text), the last line gets a line
    end."""
    lines = _chosen(chunk, choice)
    return lines if is_last else _ended(lines, _end_of(chunk))


def _chosen(chunk: Chunk, choice: Side | bytes) -> tuple[bytes, ...]:
    if isinstance(choice, bytes):
        return (choice,) if choice else ()
    if choice == "both":
        return (*_ended(chunk.ours, _end_of(chunk)), *chunk.theirs)
    return {"ours": chunk.ours, "theirs": chunk.theirs, "base": chunk.base}[choice]


def with_markers(merged: MergedText, labels: Labels = Labels(), style: Style = "zdiff3") -> bytes:  # noqa: B008
    """Return the text with each conflict between markers of ``marker_size``. In a text with CRLF, markers end in CRLF,
    as in git."""
    size = marker_size(merged)
    end = next((_end_of(chunk) for chunk in merged.chunks), b"\n")
    result: list[bytes] = []
    for chunk in merged.chunks:
        if chunk.kind == "conflict":
            result = [*_ended(result), *_marked(chunk, labels, style, size, end)]
        else:
            result += chunk.outcome
    return b"".join(result)


def _marked(chunk: Chunk, labels: Labels, style: Style, size: int, end: bytes) -> Iterator[bytes]:
    head, ours, theirs, tail = _trimmed(chunk) if style != "diff3" else ((), chunk.ours, chunk.theirs, ())
    yield from head
    yield b"<" * size + b" " + labels.ours + end
    yield from _ended(ours, end)
    if style != "merge":
        yield b"|" * size + b" " + labels.base + end
        yield from _ended(chunk.base, end)
    yield b"=" * size + end
    yield from _ended(theirs, end)
    yield b">" * size + b" " + labels.theirs + end
    yield from tail


def _trimmed(chunk: Chunk) -> tuple[tuple[bytes, ...], ...]:
    """Return both sides' common first lines, the rest of each side, and the common last lines."""
    ours, theirs = chunk.ours, chunk.theirs
    if ours == theirs:  # a conflict about the position of equal lines: trimming would leave nothing to show
        return (), ours, theirs, ()
    head = tail = 0
    most = min(len(ours), len(theirs))
    while head < most and ours[head] == theirs[head]:
        head += 1
    while tail < most - head and ours[-1 - tail] == theirs[-1 - tail]:
        tail += 1
    return ours[:head], ours[head : len(ours) - tail], theirs[head : len(theirs) - tail], ours[len(ours) - tail :]


def _ended(lines: tuple[bytes, ...] | list[bytes], end: bytes = b"\n") -> tuple[bytes, ...]:
    if not lines or lines[-1].endswith(b"\n"):
        return tuple(lines)
    return (*lines[:-1], lines[-1] + end)


def _end_of(chunk: Chunk) -> bytes:
    """Return the line end used in this chunk."""
    lines = (*chunk.ours, *chunk.theirs, *chunk.base)
    return b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"


def _length(line: bytes, signs: bytes) -> int:
    """Return how many equal signs the line starts with, or 0 if its first byte is not in ``signs``."""
    first = line[:1]
    return len(line) - len(line.lstrip(first)) if first and first in signs else 0
