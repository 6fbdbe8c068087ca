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

from mudroom.core.diff3 import Chunk, Merged

Style = Literal["merge", "diff3", "zdiff3"]
Side = Literal["ours", "theirs", "both", "base"]
LIMIT = 32 * 1024 * 1024
"""Bytes. A larger text is not merged."""
_MARKER = re.compile(rb"^(<{7,}|>{7,})( |\r?$)", re.MULTILINE)


class Labels(NamedTuple):
    ours: bytes = b"ours"
    base: bytes = b"base"
    theirs: bytes = b"theirs"


def mergeable(data: bytes, limit: int = LIMIT) -> str:
    """Why a text cannot be merged line by line; empty if it can."""
    if len(data) > limit:
        return "it is too large"
    if b"\0" in data:
        return "it is binary"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return ""


def unresolved(data: bytes) -> bool:
    """Whether a text has conflict markers in it: lines that begin with seven ``<`` or ``>``."""
    return _MARKER.search(data) is not None


def resolve(merged: Merged, choices: Mapping[int, Side | bytes]) -> Merged:
    """With the conflicts that are in ``choices``, by their number from 0, decided; the others stay."""
    chunks: list[Chunk] = []
    number = 0
    for chunk in merged.chunks:
        if chunk.kind == "conflict":
            choice = choices.get(number)
            number += 1
            if choice is not None:
                lines = _chosen(chunk, choice)
                chunk = Chunk("both", chunk.base, lines, lines)
        chunks.append(chunk)
    return Merged(tuple(chunks))


def _chosen(chunk: Chunk, choice: Side | bytes) -> tuple[bytes, ...]:
    if isinstance(choice, bytes):
        return (choice,) if choice else ()
    if choice == "both":
        return (*_ended(chunk.ours), *chunk.theirs)
    return {"ours": chunk.ours, "theirs": chunk.theirs, "base": chunk.base}[choice]


def with_markers(merged: Merged, labels: Labels = Labels(), style: Style = "zdiff3", size: int = 7) -> bytes:  # noqa: B008
    """The text with a marked place for each conflict. ``size``: of the markers; longer where the text has such lines
    itself. In a text with CRLF they end in CRLF, as git's do."""
    sides = [line for chunk in merged.chunks for line in (*chunk.ours, *chunk.base, *chunk.theirs)]
    longest = max((_length(line) for line in sides), default=0)
    size = max(size, longest + 1) if longest >= size else size
    end = b"\r\n" if any(line.endswith(b"\r\n") for line in sides[:1]) else b"\n"
    result: list[bytes] = []
    for chunk in merged.chunks:
        if chunk.kind == "conflict":
            result = [*_ended(result), *_marked(chunk, labels, style, size, end)]
        else:
            result += chunk.theirs if chunk.kind == "theirs" else chunk.ours
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


def _length(line: bytes) -> int:
    """Of the run of marker characters that a line begins with."""
    first = line[:1]
    return len(line) - len(line.lstrip(first)) if first and first in b"<|=>" else 0
