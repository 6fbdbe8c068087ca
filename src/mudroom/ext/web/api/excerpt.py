"""Lines from a file that may be too large to be read whole: reads chunks and keeps little. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from mudroom.core.text.escaping import WIDEST, escape_line
from mudroom.ext.review.core.difference import DifferenceLine

_PART = 4 * WIDEST + 4
"""Bytes kept from a line: enough for all that is shown."""
ENOUGH = 1 << 20
"""Characters after which an excerpt ends, however many lines were requested."""


class Excerpt(NamedTuple):
    total: int
    """Number of lines in the file; if it was not read to its end, the number of lines seen."""
    lines: tuple[DifferenceLine, ...]
    whole: bool = True
    """Whether the file was read to its end."""


class _Reader:
    """Owner: the caller."""

    def __init__(self, side: Literal["old", "new"], first: int, count: int, column: int) -> None:
        self._side, self._wanted, self._column = side, range(first, first + count), column
        self.number, self.lines = 1, list[DifferenceLine]()
        self._length, self._part, self._size = 0, bytearray(), 0

    def read(self, chunk: bytes) -> None:
        at = 0
        while (end := chunk.find(b"\n", at)) >= 0:
            if self.number + 1 < self._wanted.start and not self._length:  # far above: count lines in bulk
                at = self._skip(chunk, at)
                continue
            self._take(chunk, at, end)
            self._end(ends=True)
            at = end + 1
            if self.number >= self._wanted.stop:
                self.number += chunk.count(b"\n", at)
                at = chunk.rfind(b"\n") + 1
                break
        self._take(chunk, at, len(chunk))

    def finish(self, *, whole: bool) -> Excerpt:
        """Return the excerpt. The last line is left out if neither its end nor its full shown part was read."""
        if self._length:
            self._end(ends=not whole, is_whole=whole)
        return Excerpt(self.number - 1, tuple(self.lines), whole)

    def _skip(self, chunk: bytes, at: int) -> int:
        """Skip lines above the wanted ones, halving the size until it fits; return the new index."""
        size = len(chunk) - at
        while True:
            lines = chunk.count(b"\n", at, at + size)
            if self.number + lines < self._wanted.start:
                break
            size //= 2
        if not lines:
            self.number += 1
            return chunk.find(b"\n", at) + 1
        self.number += lines
        return chunk.rfind(b"\n", at, at + size) + 1

    def _start(self) -> int:
        return self._column if self.number == self._wanted.start else 0

    def _take(self, chunk: bytes, at: int, end: int) -> None:
        if self.number in self._wanted and self._size < ENOUGH:
            begin = max(at, at + self._start() - self._length)
            self._part += chunk[begin : min(end, begin + _PART - len(self._part))] if begin < end else b""
        self._length += end - at

    def _end(self, *, ends: bool, is_whole: bool = True) -> None:
        if self.number in self._wanted and self._size < ENOUGH and (is_whole or len(self._part) == _PART):
            start = min(self._start(), self._length)
            escaped_line = escape_line(bytes(self._part))
            until = start + (escaped_line.until if escaped_line.cut else len(self._part))
            cut = self._length - until
            old, new = (self.number, 0) if self._side == "old" else (0, self.number)
            self.lines.append(
                DifferenceLine(
                    " ", old, new, escaped_line.text, -1, (), escaped_line.odd, cut, until if cut else 0, ends
                )
            )
            self._size += len(escaped_line.text)
        self.number += 1
        self._length, self._part = 0, bytearray()


def excerpt(
    chunks: Iterable[bytes],
    side: Literal["old", "new"],
    first: int,
    count: int,
    column: int = 0,
    most: int | None = None,
) -> Excerpt:
    """Return ``count`` lines from line ``first`` (from 1) on; the first line starts at byte ``column``. After ``most``
    bytes no further chunk is read."""
    reader, size = _Reader(side, first, count, column), 0
    for chunk in chunks:
        if most is not None and size >= most:
            return reader.finish(whole=False)
        reader.read(chunk)
        size += len(chunk)
    return reader.finish(whole=True)
