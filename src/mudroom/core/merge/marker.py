"""Conflict markers: how a merge that is not finished is shown to a person, and told apart from one that is.

The format is git's (git-merge(1), "HOW CONFLICTS ARE PRESENTED"), in its three styles:

    <<<<<<< ours             merge    ours and theirs, without the lines at either end that both share
    ours                     diff3    all of both, and the base between them, as here
    ||||||| base             zdiff3   as merge, with the base
    base
    =======
    theirs
    >>>>>>> theirs
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from mudroom.core.merge.diff3 import Chunk, MergedText
from mudroom.core.merge.resolution_words import Side

Style = Literal["merge", "diff3", "zdiff3"]
LIMIT = 32 * 1024 * 1024
"""Bytes. A larger text is not merged."""
LINES = 400_000
"""Nor is one of more lines: comparing a million takes seconds, and most of a gigabyte."""
SIZE = 7
"""Of the markers, in characters, as git has them."""


class Labels(NamedTuple):
    ours: bytes = b"ours"
    base: bytes = b"base"
    theirs: bytes = b"theirs"


def mergeable(data: bytes, limit: int = LIMIT) -> str:
    """Why a text cannot be merged line by line; empty if it can."""
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


def unresolved(data: bytes, size: int = SIZE) -> bool:
    """Whether a text has conflict markers of this size in it: lines that begin with so many ``<`` or ``>``, and no
    more."""
    return re.search(rb"^(<{%d}|>{%d})( |\r?$)" % (size, size), data, re.MULTILINE) is not None


def marker_size(merged: MergedText) -> int:
    """The least from SIZE on that no line of the texts could be taken for."""
    used: set[int] = set()
    for chunk in merged.chunks:
        signs = b"<|=>" if chunk.kind == "conflict" else b"<|>"
        used.update(_length(line, signs) for side in chunk[1:] for line in side)
    return next(size for size in range(SIZE, SIZE + len(used) + 1) if size not in used)


def resolve(merged: MergedText, choices: Mapping[int, Side | bytes]) -> MergedText:
    """With the conflicts that are in ``choices``, by their number from 0, decided; the others stay."""
    chunks: list[Chunk] = []
    number = 0
    for place, chunk in enumerate(merged.chunks):
        if chunk.kind == "conflict":
            choice = choices.get(number)
            number += 1
            if choice is not None:
                lines = chosen(chunk, choice, is_last=place + 1 == len(merged.chunks))
                chunk = Chunk("both", chunk.base, lines, lines)
        chunks.append(chunk)
    return MergedText(tuple(chunks))


def chosen(chunk: Chunk, choice: Side | bytes, *, is_last: bool) -> tuple[bytes, ...]:
    """What becomes of a conflict. ``is_last``: of the text; else it must not run into the next line."""
    lines = _chosen(chunk, choice)
    return lines if is_last else _ended(lines, _end_of(chunk))


def _chosen(chunk: Chunk, choice: Side | bytes) -> tuple[bytes, ...]:
    if isinstance(choice, bytes):
        return (choice,) if choice else ()
    if choice == "both":
        return (*_ended(chunk.ours, _end_of(chunk)), *chunk.theirs)
    return {"ours": chunk.ours, "theirs": chunk.theirs, "base": chunk.base}[choice]


def with_markers(merged: MergedText, labels: Labels = Labels(), style: Style = "zdiff3") -> bytes:  # noqa: B008
    """The text with a marked place for each conflict; the markers are ``marker_size`` long. In a text with CRLF they
    end in CRLF, as git's do."""
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
    """What both sides begin with, what is left of each, what both end with."""
    ours, theirs = chunk.ours, chunk.theirs
    if ours == theirs:  # a conflict about where it belongs: nothing would be left to show
        return (), ours, theirs, ()
    head = tail = 0
    most = min(len(ours), len(theirs))
    while head < most and ours[head] == theirs[head]:
        head += 1
    while tail < most - head and ours[-1 - tail] == theirs[-1 - tail]:
        tail += 1
    return ours[:head], ours[head : len(ours) - tail], theirs[head : len(theirs) - tail], ours[len(ours) - tail :]


def _ended(lines: tuple[bytes, ...] | list[bytes], end: bytes = b"\n") -> tuple[bytes, ...]:
    """With a newline at the end of the last line, whatever it had."""
    if not lines or lines[-1].endswith(b"\n"):
        return tuple(lines)
    return (*lines[:-1], lines[-1] + end)


def _end_of(chunk: Chunk) -> bytes:
    """How lines end around here."""
    lines = (*chunk.ours, *chunk.theirs, *chunk.base)
    return b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"


def _length(line: bytes, signs: bytes) -> int:
    """Of the run of one of these signs that a line begins with."""
    first = line[:1]
    return len(line) - len(line.lstrip(first)) if first and first in signs else 0
