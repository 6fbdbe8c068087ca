"""The pane with the current file's differences: hunks to choose, and notes."""

from __future__ import annotations

from mudroom.core.merge.pick import Pick
from mudroom.ext.tui.choice import SIGNS, Item, Mark, toggle_block, toggle_mode, wanted_blocks
from mudroom.ext.tui.diffrow import (
    CONTEXTS,
    DiffRow,
    FileRows,
    FileText,
    Group,
    Layout,
    Marker,
    header_of,
    lay_out,
    line_of_moved,
)
from mudroom.ext.tui.line import Piece, pieces
from mudroom.ext.tui.pane import Pane, Pieces

WIDE = 120
"""Screen columns needed to show both sides beside each other."""
_SIGN = {"same": " ", "old": "-", "new": "+"}
_STYLE = {"same": "", "old": "removed", "new": "added"}


class DiffView(Pane):
    def __init__(self, *, chooses: bool = True) -> None:
        """``chooses``: False if the differences are read-only."""
        super().__init__(id="diff")
        self._chooses = chooses
        self.item: Item | None = None
        self.shown = FileRows()
        self.layout_of = Layout([], [])
        self.pick: Pick | None = None
        self.picks_other = False
        """For a move: whether its other end is chosen."""
        self.seen: frozenset[int] = frozenset()
        """Blocks marked as reviewed."""
        self.context = 0
        self.side_by_side = False
        self._cuts: frozenset[int] = frozenset()
        self._opened: frozenset[int] = frozenset()
        """First blocks of the hunks that change nothing and are shown all the same."""
        self._marks: Marker | None = None

    def show_item(self, item: Item | None, shown: FileRows) -> None:
        """Show a file; keep the position if it is the same file."""
        same = item is not None and self.item is not None and item.path == self.item.path
        self.item, self.shown = item, shown
        if not same:
            self._cuts, self._opened, self.context, self.sideways = frozenset(), frozenset(), 0, 0
        self._marks = None
        self._lay_out()
        stops = self.layout_of.stops
        self.show_rows(len(self.layout_of.rows), stops[0] if stops else 0)

    def _lay_out(self) -> None:
        self.layout_of = lay_out(
            self.shown, CONTEXTS[self.context], self._cuts, side_by_side=self.side_by_side, opened=self._opened
        )

    def _lay_out_at(self, block: int) -> None:
        """Lay the rows out again, with the cursor at the hunk that has this block."""
        self._lay_out()
        groups = self.layout_of.groups
        row = next((group.row for group in groups if block in group.blocks), self.cursor)
        self.show_rows(len(self.layout_of.rows), row)

    # --- the cursor ---

    @property
    def group(self) -> Group | None:
        """The hunk at the cursor."""
        rows = self.layout_of.rows
        if not rows or self.cursor >= len(rows):
            return None
        hunk = rows[self.cursor].hunk
        return self.layout_of.groups[hunk] if hunk >= 0 else None

    def next_stop(self, by: int) -> bool:
        """Go to the next or previous hunk. Return False if there is none."""
        stops = [n for n in self.layout_of.stops if (n > self.cursor if by > 0 else n < self.cursor)]
        if not stops:
            return False
        self.cursor = stops[0] if by > 0 else stops[-1]
        group = self.group
        self.keep_in_sight(1, min(self.size.height - 2, (group.old_end - group.old_start) + 2 if group else 0))
        self.refresh()
        return True

    def to_edge(self, by: int) -> None:
        stops = self.layout_of.stops
        if stops:
            self.cursor = stops[0] if by > 0 else stops[-1]
            self.keep_in_sight()
            self.refresh()

    # --- actions ---

    def toggled(self) -> tuple[bool, Pick | None]:
        """Return whether a choice can be made at the cursor, and the pick after toggling it."""
        rows, text = self.layout_of.rows, self.shown.text
        if not rows or text is None or not self.shown.divisible:
            return False, None
        if rows[self.cursor].kind == "mode":
            return True, toggle_mode(self.pick, text.numbers)
        group = self.group
        if group is None:
            return False, None
        has_mode = self.shown.mode is not None
        return True, toggle_block(self.pick, frozenset(group.blocks), text.numbers, has_mode=has_mode)

    def split(self) -> bool:
        group = self.group
        if group is None or len(group.blocks) < 2 or not self.shown.divisible:
            return False
        self._cuts |= frozenset(group.blocks[1:])
        self._lay_out_at(group.blocks[0])
        return True

    def unfold(self) -> None:
        """Show the lines of a hunk that changes nothing, or fold them."""
        group = self.group
        if group is not None and self.shown.is_dull(group.blocks):
            self._opened ^= {group.blocks[0]}
            self._lay_out_at(group.blocks[0])

    def widen(self, by: int) -> bool:
        context = max(0, min(self.context + by, len(CONTEXTS) - 1))
        if context == self.context:
            return False
        group = self.group
        self.context = context
        self._lay_out_at(group.blocks[0] if group is not None else -1)
        return True

    def set_side_by_side(self, on: bool) -> None:
        if on != self.side_by_side:
            group = self.group
            self.side_by_side = on
            self._lay_out_at(group.blocks[0] if group is not None else -1)

    def shift(self, by: int) -> None:
        self.sideways = max(0, self.sideways + by)
        self.refresh()

    # --- drawing ---

    def row(self, number: int, width: int) -> Pieces:
        row, text = self.layout_of.rows[number], self.shown.text
        pointer = ("▌" if number == self.cursor else " ", "head")
        if row.kind == "mode" and self.shown.mode is not None:
            old, new = self.shown.mode
            chosen = self.pick is not None and self.pick.mode
            return [pointer, _sign("all" if chosen else "none"), (f" permissions {old:04o} → {new:04o}", "head")]
        if row.kind == "note":
            return [pointer, (self.shown.notes[row.old], "warn")]
        if row.kind == "moved" and self.shown.moved is not None:
            line = line_of_moved(self.shown.moved, mine=self.pick is not None, other=self.picks_other)
            return [pointer, (line, "warn")]
        if row.kind == "part":
            line, style = self.shown.parts[row.old]
            return [pointer, *_cut([(line.replace("\t", "    "), style)], self.sideways, width - 1)]
        if text is None:
            return [pointer]
        if row.kind == "hunk":
            return self._heading(row.hunk, text, pointer)
        if row.kind == "pair" or (self.side_by_side and row.kind == "same"):
            return self._pair(row, text, pointer, width)
        return self._line(row, text, pointer, width)

    def _marker(self, text: FileText) -> Marker:
        if self._marks is None:
            self._marks = Marker(text)
        return self._marks

    def _heading(self, hunk: int, text: FileText, pointer: tuple[str, str]) -> Pieces:
        group = self.layout_of.groups[hunk]
        wanted = wanted_blocks(self.pick, text.numbers)
        inside = set(group.blocks)
        mark: Mark = "all" if inside <= wanted else "part" if inside & wanted else "none"
        seen = " v" if inside <= self.seen else ""
        return [
            pointer,
            *((_sign(mark), (seen, "good")) if self._chooses else ()),
            (" " + header_of(group, hunk, len(self.layout_of.groups)), "head"),
            *self._reasons(group),
        ]

    def _reasons(self, group: Group) -> Pieces:
        risk = self.shown.risk(group.blocks)
        if risk is None or not risk.reasons:
            return []
        if risk.risk != "dull":
            return [(f"  {'; '.join(risk.reasons)}", "warn")]
        is_open = group.blocks[0] in self._opened
        return [(f"  {', '.join(risk.reasons)}" + ("" if is_open else ": Enter shows it"), "dim")]

    def _line(self, row: DiffRow, text: FileText, pointer: tuple[str, str], width: int) -> Pieces:
        digits = len(str(max(len(text.old), len(text.new))))
        numbers = f"{row.old + 1 or '':>{digits}} {row.new + 1 or '':>{digits}} "
        line = text.new[row.new] if row.kind != "old" else text.old[row.old]
        mine: tuple[tuple[int, int], ...] = ()
        if row.kind != "same":
            mine = self._marker(text).spans(row.block, row.old, row.new)[row.kind == "new"]
        style = _STYLE[row.kind]
        body = _styled(pieces(line, mine), style)
        chosen = row.kind == "same" or not self._chooses or row.block in wanted_blocks(self.pick, text.numbers)
        sign = (_SIGN[row.kind], style if chosen else "dim")
        return [pointer, (numbers, "dim"), sign, *_cut(body, self.sideways, width - 2 - len(numbers))]

    def _pair(self, row: DiffRow, text: FileText, pointer: tuple[str, str], width: int) -> Pieces:
        digits = len(str(max(len(text.old), len(text.new))))
        half = (width - 2) // 2
        room = half - digits - 2
        spans: tuple[tuple[tuple[int, int], ...], ...] = ((), ())
        if row.kind == "pair":
            spans = self._marker(text).spans(row.block, row.old, row.new)
        cells: list[tuple[str, str]] = [pointer]
        sides = ((text.old, row.old, spans[0], "removed", "-"), (text.new, row.new, spans[1], "added", "+"))
        for place, (lines, number, marked, style, sign) in enumerate(sides):
            changed = row.kind == "pair"
            body = _styled(pieces(lines[number], marked), style if changed else "") if number >= 0 else []
            cells.append((f"{number + 1 or '':>{digits}} ", "dim"))
            cells.append((sign if changed and number >= 0 else " ", style))
            cells += _cut(body, self.sideways, room, fill=True)
            cells += [("│", "dim")] if not place else []
        return cells


def _sign(mark: Mark) -> tuple[str, str]:
    return SIGNS[mark], {"all": "good", "part": "warn", "none": "dim"}[mark]


def _styled(pieces_: list[Piece], style: str) -> list[tuple[str, str]]:
    return [
        (piece.text, "odd" if piece.odd else f"{style}-word" if piece.differs and style else style) for piece in pieces_
    ]


def _cut(cells: list[tuple[str, str]], start: int, width: int, *, fill: bool = False) -> list[tuple[str, str]]:
    """Return ``width`` cells from ``start`` on. A mark at the end shows that text was cut."""
    from rich.cells import cell_len, set_cell_size

    result: list[tuple[str, str]] = []
    at, end = 0, start + width
    for text, style in cells:
        size = cell_len(text)
        if at + size > start and at < end:
            if at < start or at + size > end:
                text = _slice(text, max(0, start - at), end - at)
            result.append((text, style))
        at += size
    if at > end and width > 1 and result:
        last, style = result[-1]
        before = sum(cell_len(text) for text, _style in result[:-1])
        result[-1] = (set_cell_size(last, max(0, width - 1 - before)), style)
        result.append(("»", "odd"))
    used = sum(cell_len(text) for text, _style in result)
    return [*result, (" " * (width - used), "")] if fill and used < width else result


def _slice(text: str, start: int, end: int) -> str:
    """Return the cells from ``start`` to ``end``; half a wide character becomes a space."""
    from rich.cells import cell_len

    sliced, at = "", 0
    for character in text:
        size = cell_len(character)
        if at >= start and at + size <= end:
            sliced += character
        elif at < end and at + size > start:
            sliced += " "
        at += size
        if at >= end:
            break
    return sliced
