"""Some lines of a file that may be far too large to be read whole: by chunks, of which little is kept. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from mudroom.core.text.difference import DifferenceLine
from mudroom.core.text.escaping import WIDEST, shown

_PART = 4 * WIDEST + 4
"""Bytes of a line that are kept: enough for all that is shown of it."""
ENOUGH = 1 << 20
"""Characters after which an excerpt ends, whatever was asked for."""


class Excerpt(NamedTuple):
    total: int
    """Lines of the file; of one that was not read to its end, those that were seen."""
    lines: tuple[DifferenceLine, ...]
    whole: bool = True
    """Whether it was read to its end."""


class _Reader:
    def __init__(self, side: Literal["old", "new"], first: int, count: int, column: int) -> None:
        self._side, self._wanted, self._column = side, range(first, first + count), column
        self.number, self.lines = 1, list[DifferenceLine]()
        self._length, self._part, self._size = 0, bytearray(), 0

    def read(self, chunk: bytes) -> None:
        at = 0
        while (end := chunk.find(b"\n", at)) >= 0:
            if self.number + 1 < self._wanted.start and not self._length:  # far above: count them all at once
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
        """A line of which neither the end was seen nor all that is shown of one is none of the lines."""
        if self._length:
            self._end(ends=not whole, is_whole=whole)
        return Excerpt(self.number - 1, tuple(self.lines), whole)

    def _skip(self, chunk: bytes, at: int) -> int:
        """Past as many lines as are not wanted, by halves of what is left."""
        size = len(chunk) - at
        while True:
            there = chunk.count(b"\n", at, at + size)
            if self.number + there < self._wanted.start:
                break
            size //= 2
        if not there:
            self.number += 1
            return chunk.find(b"\n", at) + 1
        self.number += there
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
            found = shown(bytes(self._part))
            until = start + (found.until if found.cut else len(self._part))
            cut = self._length - until
            old, new = (self.number, 0) if self._side == "old" else (0, self.number)
            self.lines.append(
                DifferenceLine(" ", old, new, found.text, -1, (), found.odd, cut, until if cut else 0, ends)
            )
            self._size += len(found.text)
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
    """Lines from ``first`` on, which is at least 1; of the first of them what is from byte ``column`` on. ``most``:
    bytes after which no further chunk is looked at."""
    reader, size = _Reader(side, first, count, column), 0
    for chunk in chunks:
        if most is not None and size >= most:
            return reader.finish(whole=False)
        reader.read(chunk)
        size += len(chunk)
    return reader.finish(whole=True)
