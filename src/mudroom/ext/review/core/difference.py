"""Two texts side by side, viewed and selected in pieces.

Blocks are selected, by the numbers of ``core/text/hunk.py``. Hunks are shown: blocks with unchanged lines around them.
A hunk with too many lines is divided into pieces. A block with too many lines spans several pieces, with its old and
new lines side by side. A line is built only when its piece is requested.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.text.escaping import Span, escape_line
from mudroom.core.text.linediff import Block, diff_lines, grouped, split_lines
from mudroom.ext.review.core.worddiff import Budget, diff_words
from mudroom.typing import Literal, NamedTuple

Sign = Literal[" ", "-", "+"]
PIECE = 1_000
"""Most lines in a piece."""
_SECTION, _SECTION_FAR = 80, 10_000
"""Most characters in a heading; lines above a hunk that are searched for it."""


class DifferenceLine(NamedTuple):
    kind: Sign
    old: int
    """Line number from 1; 0: the line is not on this side."""
    new: int
    text: str
    """Escaped (``core/text/escaping.py``), without its newline."""
    block: int = -1
    """Its changed block's number; -1: the line is unchanged."""
    words: tuple[Span, ...] = ()
    """Spans that differ from the line on the other side that it replaces or is replaced by."""
    odd: tuple[Span, ...] = ()
    cut: int = 0
    """Bytes at the line's end that are not in ``text``."""
    until: int = 0
    """Offset in the line where these bytes begin."""
    ends: bool = True
    """Whether the line ends with a newline."""


class DifferenceHunk(NamedTuple):
    blocks: tuple[int, ...]
    """Its blocks' numbers; the first or last block may go on in another piece, see ``continued``."""
    old_start: int
    """Line number from 1; for an empty range the number of the line before it."""
    old_lines: int
    new_start: int
    new_lines: int
    section: str
    """The nearest unindented line above, as git shows it (xdiff/xemit.c, def_ff)."""
    lines: tuple[DifferenceLine, ...]
    continued: bool = False
    """Whether this piece continues the previous piece's hunk."""


class _Run(NamedTuple):
    """Consecutive lines with one kind; ``old`` and ``new`` are the positions on each side."""

    kind: Sign
    old: int
    new: int
    many: int
    block: int


_Unit = tuple[_Run, ...]
"""Runs that stay together: a block's old and new lines."""


class _Piece(NamedTuple):
    runs: tuple[_Run, ...]
    continued: bool


class _Section(NamedTuple):
    start: int
    """The line above which the heading was searched."""
    text: str


class Texts:
    """Compares ``old`` and ``new`` line by line, with ``context`` unchanged lines around changes."""

    def __init__(self, old: bytes, new: bytes, context: int = 3) -> None:
        self._old, self._new = split_lines(old), split_lines(new)
        self.blocks: list[Block] = diff_lines(self._old, self._new)
        self._context = max(0, context)
        self._pieces = [piece for group in grouped(self.blocks, self._context) for piece in _packed(self._units(group))]

    @property
    def lines(self) -> tuple[int, int]:
        """Line counts: old text, new text."""
        return len(self._old), len(self._new)

    @property
    def sides(self) -> tuple[list[bytes], list[bytes]]:
        """Raw lines: old text, new text."""
        return self._old, self._new

    def __len__(self) -> int:
        """Return the piece count."""
        return len(self._pieces)

    def page(self, first: int = 0, lines: int = 2_000) -> tuple[tuple[DifferenceHunk, ...], int | None]:
        """Return hunks from ``first`` on with at most ``lines`` lines together (but at least one hunk), and the next
        page's first index, or None after the last."""
        budget, hunks_found, line_count, above = Budget(), list[DifferenceHunk](), 0, _Section(0, "")
        index = max(0, first)
        while index < len(self._pieces) and (not hunks_found or line_count + _size(self._pieces[index].runs) <= lines):
            above = self._section(self._pieces[index].runs[0].old, above)
            hunk = self._hunk(self._pieces[index], above.text, budget)
            hunks_found.append(hunk)
            line_count += len(hunk.lines)
            index += 1
        return tuple(hunks_found), index if index < len(self._pieces) else None

    def _units(self, group: range) -> Iterator[_Unit]:
        first, last = self.blocks[group[0]], self.blocks[group[-1]]
        lead = min(self._context, first.old_start)
        at = first.old_start - lead
        for number in group:
            block = self.blocks[number]
            yield from _same(at, block.new_start - (block.old_start - at), block.old_start - at)
            yield from _changed(block, number)
            at = block.old_end
        yield from _same(at, last.new_end, min(self._context, len(self._old) - at))

    def _hunk(self, piece: _Piece, section: str, budget: Budget) -> DifferenceHunk:
        runs = piece.runs
        old = sum(run.many for run in runs if run.kind != "+")
        new = sum(run.many for run in runs if run.kind != "-")
        blocks = tuple(dict.fromkeys(run.block for run in runs if run.block >= 0))
        start, new_start = runs[0].old, runs[0].new
        return DifferenceHunk(
            blocks,
            start + (old > 0),
            old,
            new_start + (new > 0),
            new,
            section,
            tuple(self._lines(runs, budget)),
            piece.continued,
        )

    def _lines(self, runs: tuple[_Run, ...], budget: Budget) -> Iterator[DifferenceLine]:
        index = 0
        while index < len(runs):
            run = runs[index]
            following = runs[index + 1] if index + 1 < len(runs) else None
            if run.kind == "-" and following is not None and following.kind == "+":
                yield from self._replaced(run, following, budget)
                index += 2
            else:
                yield from (self._line(run, number) for number in range(run.many))
                index += 1

    def _replaced(self, removed: _Run, added: _Run, budget: Budget) -> Iterator[DifferenceLine]:
        old = [self._line(removed, number) for number in range(removed.many)]
        new = [self._line(added, number) for number in range(added.many)]
        marks = diff_words([line.text for line in old], [line.text for line in new], budget)
        for lines, spans in ((old, marks.old), (new, marks.new)):
            for line, marked in zip(lines, spans, strict=True):
                yield line._replace(words=marked) if marked else line

    def _line(self, run: _Run, number: int) -> DifferenceLine:
        raw = self._new[run.new + number] if run.kind == "+" else self._old[run.old + number]
        old = run.old + number + 1 if run.kind != "+" else 0
        new = run.new + number + 1 if run.kind != "-" else 0
        return line_of(raw, run.kind, old, new, run.block)

    def _section(self, start: int, above: _Section) -> _Section:
        """Return the heading above a line. ``above``: the heading found for an earlier line, so that no line is
        examined twice."""
        for number in range(start - 1, max(above.start, start - _SECTION_FAR) - 1, -1):
            line = self._old[number]
            if line[:1].isalpha() or line[:1] in (b"_", b"$"):
                return _Section(start, escape_line(line.rstrip(b"\r\n"), widest=_SECTION).text)
        return _Section(start, above.text)


def line_of(raw: bytes, kind: Sign, old: int, new: int, block: int = -1, start: int = 0) -> DifferenceLine:
    """Return a difference's line. ``raw``: with its newline, if it has one. ``start``: offset of the first byte to
    show."""
    ends = raw.endswith(b"\n")
    text, odd, cut, until = escape_line(raw[:-1] if ends else raw, start)
    return DifferenceLine(kind, old, new, text, block, (), odd, cut, until, ends)


def _same(old: int, new: int, count: int) -> Iterator[_Unit]:
    for start in range(0, count, PIECE):
        yield (_Run(" ", old + start, new + start, min(PIECE, count - start), -1),)


def _changed(block: Block, number: int) -> Iterator[_Unit]:
    old_count, new_count = block.old_end - block.old_start, block.new_end - block.new_start
    step = max(old_count, new_count, 1) if old_count + new_count <= PIECE else PIECE // 2
    for start in range(0, max(old_count, new_count), step):
        removed = max(0, min(step, old_count - start))
        added = max(0, min(step, new_count - start))
        old, new = block.old_start + min(start, old_count), block.new_start + min(start, new_count)
        runs = (_Run("-", old, new, removed, number), _Run("+", old + removed, new, added, number))
        yield tuple(run for run in runs if run.many)


def _packed(units: Iterator[_Unit]) -> Iterator[_Piece]:
    runs: list[_Run] = []
    continued = False
    for unit in units:
        if runs and _size(runs) + _size(unit) > PIECE:
            yield _Piece(tuple(runs), continued)
            runs, continued = [], True
        runs += unit
    if runs:
        yield _Piece(tuple(runs), continued)


def _size(runs: tuple[_Run, ...] | list[_Run]) -> int:
    return sum(run.many for run in runs)
