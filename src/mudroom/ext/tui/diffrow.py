"""One file's differences as rows: hunks with context, inline or side by side. Pure.

A row refers to lines by number and holds no text, so a hundred thousand rows cost little. Only rows on the screen are
drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from mudroom.core.text.escaping import Span
from mudroom.core.text.linediff import Block, diff_lines, grouped, split_lines
from mudroom.core.tree.path import show_path
from mudroom.ext.order.core.risk import BlockRisk, join_risks
from mudroom.ext.review.core.worddiff import Budget, diff_words, differing_spans
from mudroom.ext.tui.line import text_of_line
from mudroom.ext.views.lines import ViewLine

if TYPE_CHECKING:
    from mudroom.ext.review.rows import MovedRow

Kind = Literal["note", "part", "moved", "mode", "hunk", "same", "old", "new", "pair"]

CONTEXTS = (3, 10, 30, 100, 1 << 30)
"""Unchanged lines around a hunk; the last value means all."""


class FileText(NamedTuple):
    """Both sides of a file, and the differing blocks."""

    old: list[bytes]
    new: list[bytes]
    blocks: list[Block]

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(range(len(self.blocks)))


class FileRows(NamedTuple):
    """A change as it is displayed."""

    notes: tuple[str, ...] = ()
    mode: tuple[int, int] | None = None
    text: FileText | None = None
    divisible: bool = True
    """Whether single hunks can be chosen."""
    moved: MovedRow | None = None
    """The other end, if the file was moved and changed."""
    risks: tuple[BlockRisk, ...] = ()
    """By block; empty if they are not known."""
    parts: tuple[ViewLine, ...] = ()
    """The file by its parts, instead of its text."""

    def risk(self, blocks: tuple[int, ...]) -> BlockRisk | None:
        """Return a hunk's risk, or None if it is not known."""
        return join_risks([self.risks[block] for block in blocks]) if self.risks else None

    def is_dull(self, blocks: tuple[int, ...]) -> bool:
        """Return whether a hunk is proven to change nothing."""
        risk = self.risk(blocks)
        return risk is not None and risk.risk == "dull"


class DiffRow(NamedTuple):
    kind: Kind
    old: int = -1
    """Line index; for a ``note`` and a ``part``, its index."""
    new: int = -1
    hunk: int = -1
    block: int = -1


class Group(NamedTuple):
    """A hunk: its blocks and the lines it shows."""

    blocks: tuple[int, ...]
    old_start: int
    old_end: int
    new_start: int
    new_end: int
    folded: int
    """Unchanged lines between this hunk and the one above."""
    row: int = 0
    """Row of the hunk's heading."""


class Layout(NamedTuple):
    rows: list[DiffRow]
    groups: list[Group]
    tail: int = 0
    """Unchanged lines after the last hunk."""

    @property
    def stops(self) -> list[int]:
        """The rows where a choice can be made."""
        return [number for number, row in enumerate(self.rows[:1]) if row.kind == "mode"] + [g.row for g in self.groups]


def text_of(old: bytes, new: bytes) -> FileText:
    before, after = split_lines(old), split_lines(new)
    return FileText(before, after, diff_lines(before, after))


def groups_of(text: FileText, context: int, cuts: frozenset[int]) -> list[Group]:
    """Return the hunks. ``cuts``: blocks that begin a hunk even if the previous block is near."""
    blocks, block_groups = text.blocks, grouped(text.blocks, context, cuts)
    groups: list[Group] = []
    above = 0
    for place, numbers in enumerate(block_groups):
        first, last = blocks[numbers[0]], blocks[numbers[-1]]
        following = blocks[block_groups[place + 1][0]].old_start if place + 1 < len(block_groups) else len(text.old)
        start = max(above, first.old_start - context)
        end = min(following, last.old_end + context)
        if place + 1 < len(block_groups) and following - last.old_end <= 2 * context:
            end = last.old_end + (following - last.old_end) // 2  # cut apart: each has half the lines between
        lead, tail = first.old_start - start, end - last.old_end
        groups.append(Group(tuple(numbers), start, end, first.new_start - lead, last.new_end + tail, start - above))
        above = end
    return groups


def lay_out(
    shown: FileRows,
    context: int,
    cuts: frozenset[int],
    *,
    side_by_side: bool = False,
    opened: frozenset[int] = frozenset(),
) -> Layout:
    """Return the rows. A hunk that is proven to change nothing is its heading alone, unless its first block is in
    ``opened``."""
    rows: list[DiffRow] = []
    if shown.mode is not None:
        rows.append(DiffRow("mode"))
    rows += [DiffRow("note", number) for number in range(len(shown.notes))]
    if shown.moved is not None:
        rows.append(DiffRow("moved"))
    rows += [DiffRow("part", number) for number in range(len(shown.parts))]
    text = shown.text
    if text is None:
        return Layout(rows, [])
    groups = groups_of(text, context, cuts)
    for number, group in enumerate(groups):
        groups[number] = group._replace(row=len(rows))
        rows.append(DiffRow("hunk", hunk=number))
        if shown.is_dull(group.blocks) and group.blocks[0] not in opened:
            continue
        at, other = group.old_start, group.new_start
        for block_number in group.blocks:
            block = text.blocks[block_number]
            rows += [DiffRow("same", at + n, other + n, number) for n in range(block.old_start - at)]
            rows += _changed(block, number, block_number, side_by_side=side_by_side)
            at, other = block.old_end, block.new_end
        rows += [DiffRow("same", at + n, other + n, number) for n in range(group.old_end - at)]
    tail = len(text.old) - groups[-1].old_end if groups else 0
    return Layout(rows, groups, tail)


def _changed(block: Block, hunk: int, number: int, *, side_by_side: bool) -> list[DiffRow]:
    olds, news = range(block.old_start, block.old_end), range(block.new_start, block.new_end)
    if not side_by_side:
        return [DiffRow("old", line, -1, hunk, number) for line in olds] + [
            DiffRow("new", -1, line, hunk, number) for line in news
        ]
    return [
        DiffRow(
            "pair", olds[offset] if offset < len(olds) else -1, news[offset] if offset < len(news) else -1, hunk, number
        )
        for offset in range(max(len(olds), len(news)))
    ]


MOST_SIMILAR = 64
"""Block size, in lines per side, up to which similar lines are searched for. In larger blocks lines at equal offsets
are compared."""


class Marker:
    """Differing words, computed when a line is drawn and cached while the file is shown."""

    def __init__(self, text: FileText) -> None:
        self._text = text
        self._cache: dict[int, tuple[tuple[tuple[Span, ...], ...], tuple[tuple[Span, ...], ...]]] = {}

    def spans(self, block: int, old: int, new: int) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Return the differing spans of a block's old and new line (-1: no line), as character ranges in the shown
        text."""
        place = self._text.blocks[block]
        if max(place.old_end - place.old_start, place.new_end - place.new_start) <= MOST_SIMILAR:
            if block not in self._cache:
                before = [text_of_line(line) for line in self._text.old[place.old_start : place.old_end]]
                after = [text_of_line(line) for line in self._text.new[place.new_start : place.new_end]]
                differences = diff_words(before, after, Budget())
                self._cache[block] = (differences.old, differences.new)
            olds, news = self._cache[block]
            return (
                olds[old - place.old_start] if old >= 0 else (),
                news[new - place.new_start] if new >= 0 else (),
            )
        if old < 0:
            old = place.old_start + new - place.new_start
        if new < 0:
            new = place.new_start + old - place.old_start
        if old >= place.old_end or new >= place.new_end:
            return (), ()
        return differing_spans(text_of_line(self._text.old[old]), text_of_line(self._text.new[new]), Budget())


def line_of_moved(moved: MovedRow, *, mine: bool, other: bool) -> str:
    """Return the line about a move. ``mine``, ``other``: whether this end and the other end are chosen."""
    line = f"moved {'from' if moved.is_source else 'to'} {show_path(moved.path)}, {moved.percent} % the same"
    if mine == other:
        return line
    return f"{line}: only {'this one' if mine else 'that one'} of the two is chosen"


def header_of(group: Group, number: int, count: int) -> str:
    old, new = group.old_end - group.old_start, group.new_end - group.new_start
    lines = f"@@ -{group.old_start + (old > 0)},{old} +{group.new_start + (new > 0)},{new} @@"
    return f"{lines}  hunk {number + 1} of {count}" + (f"  ⋯ {group.folded:,} above" if group.folded else "")
