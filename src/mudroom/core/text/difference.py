"""Two texts beside each other, to be looked at and chosen from, piece by piece.

What is chosen are blocks, by the numbers that ``core/text/hunk.py`` counts them by. What is shown are hunks of them
with unchanged lines around; one that has too many lines comes in several pieces, and a block of too many lines is in
more than one of them, its old and new lines side by side. Nothing of a line is made before its piece is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from mudroom.core.text.escaping import Span, shown
from mudroom.core.text.linediff import Block, diff_lines, split_lines
from mudroom.core.text.worddiff import Budget, words

Sign = Literal[" ", "-", "+"]
PIECE = 1_000
"""Lines that one piece of a hunk has at most."""
_SECTION, _SECTION_FAR = 80, 10_000
"""Characters of a heading, and how many lines above a hunk it is looked for."""


class DifferenceLine(NamedTuple):
    kind: Sign
    old: int
    """Its number, from 1; 0: it is not on this side."""
    new: int
    text: str
    """As ``core/text/escaping.py`` has it, without its newline."""
    block: int = -1
    """The number of the changed block that it belongs to; -1: it is not changed."""
    words: tuple[Span, ...] = ()
    """What is different in it from the line that it replaces, or is replaced by."""
    odd: tuple[Span, ...] = ()
    cut: int = 0
    """Bytes at its end that are not in ``text``."""
    until: int = 0
    """Where in the line those begin, in bytes."""
    ends: bool = True
    """Whether it ends with a newline."""


class DifferenceHunk(NamedTuple):
    blocks: tuple[int, ...]
    """What is chosen with it, or a part of what is: see ``continued``."""
    old_start: int
    """From 1; of no lines: the one before."""
    old_lines: int
    new_start: int
    new_lines: int
    section: str
    """The nearest line above that is not indented: what git shows there (xdiff/xemit.c, def_ff)."""
    lines: tuple[DifferenceLine, ...]
    continued: bool = False
    """Whether it goes on where the piece before it ends."""


class _Run(NamedTuple):
    """Lines of one kind; of the other side, ``at`` is where it stands."""

    kind: Sign
    old: int
    new: int
    many: int
    block: int


_Unit = tuple[_Run, ...]
"""What is not torn apart: the old and new lines of a block."""


class _Piece(NamedTuple):
    runs: tuple[_Run, ...]
    continued: bool


class _Section(NamedTuple):
    start: int
    """The line above which it was looked for."""
    text: str


class Texts:
    """``old`` and ``new`` compared line by line, with ``context`` unchanged lines around what has changed."""

    def __init__(self, old: bytes, new: bytes, context: int = 3) -> None:
        self._old, self._new = split_lines(old), split_lines(new)
        self.blocks: list[Block] = diff_lines(self._old, self._new)
        self._context = max(0, context)
        self._pieces = [piece for group in self._groups() for piece in _packed(self._units(group))]

    @property
    def lines(self) -> tuple[int, int]:
        """How many the old and the new one have."""
        return len(self._old), len(self._new)

    @property
    def sides(self) -> tuple[list[bytes], list[bytes]]:
        """The lines of the old and the new one, as they are."""
        return self._old, self._new

    def __len__(self) -> int:
        """Hunks, or pieces of them."""
        return len(self._pieces)

    def page(self, first: int = 0, lines: int = 2_000) -> tuple[tuple[DifferenceHunk, ...], int | None]:
        """Hunks from ``first`` on until there are so many lines (one in any case), and the one at which the next page
        begins; None: there are no more."""
        budget, found, count, above = Budget(), list[DifferenceHunk](), 0, _Section(0, "")
        at = max(0, first)
        while at < len(self._pieces) and (not found or count + _size(self._pieces[at].runs) <= lines):
            above = self._section(self._pieces[at].runs[0].old, above)
            hunk = self._hunk(self._pieces[at], above.text, budget)
            found.append(hunk)
            count += len(hunk.lines)
            at += 1
        return tuple(found), at if at < len(self._pieces) else None

    def _groups(self) -> Iterator[tuple[int, int]]:
        """Ranges of blocks with at most twice the context between each and the next."""
        start = 0
        for number in range(1, len(self.blocks) + 1):
            if number == len(self.blocks) or (
                self.blocks[number].old_start - self.blocks[number - 1].old_end > 2 * self._context
            ):
                yield start, number
                start = number

    def _units(self, group: tuple[int, int]) -> Iterator[_Unit]:
        first, last = self.blocks[group[0]], self.blocks[group[1] - 1]
        lead = min(self._context, first.old_start)
        at = first.old_start - lead
        for number in range(*group):
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

    def _replaced(self, gone: _Run, come: _Run, budget: Budget) -> Iterator[DifferenceLine]:
        old = [self._line(gone, number) for number in range(gone.many)]
        new = [self._line(come, number) for number in range(come.many)]
        found = words([line.text for line in old], [line.text for line in new], budget)
        for lines, spans in ((old, found.old), (new, found.new)):
            for line, marked in zip(lines, spans, strict=True):
                yield line._replace(words=marked) if marked else line

    def _line(self, run: _Run, number: int) -> DifferenceLine:
        raw = self._new[run.new + number] if run.kind == "+" else self._old[run.old + number]
        old = run.old + number + 1 if run.kind != "+" else 0
        new = run.new + number + 1 if run.kind != "-" else 0
        return line_of(raw, run.kind, old, new, run.block)

    def _section(self, start: int, above: _Section) -> _Section:
        """``above``: what was found for a line further up. No line is looked at twice."""
        for number in range(start - 1, max(above.start, start - _SECTION_FAR) - 1, -1):
            line = self._old[number]
            if line[:1].isalpha() or line[:1] in (b"_", b"$"):
                return _Section(start, shown(line.rstrip(b"\r\n"), widest=_SECTION).text)
        return _Section(start, above.text)


def line_of(raw: bytes, kind: Sign, old: int, new: int, block: int = -1, start: int = 0) -> DifferenceLine:
    """``raw``: with its newline, if it has one. ``start``: the byte of it that is shown first."""
    ends = raw.endswith(b"\n")
    text, odd, cut, until = shown(raw[:-1] if ends else raw, start)
    return DifferenceLine(kind, old, new, text, block, (), odd, cut, until, ends)


def _same(old: int, new: int, count: int) -> Iterator[_Unit]:
    for start in range(0, count, PIECE):
        yield (_Run(" ", old + start, new + start, min(PIECE, count - start), -1),)


def _changed(block: Block, number: int) -> Iterator[_Unit]:
    gone, come = block.old_end - block.old_start, block.new_end - block.new_start
    step = max(gone, come, 1) if gone + come <= PIECE else PIECE // 2
    for start in range(0, max(gone, come), step):
        removed = max(0, min(step, gone - start))
        added = max(0, min(step, come - start))
        old, new = block.old_start + min(start, gone), block.new_start + min(start, come)
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
