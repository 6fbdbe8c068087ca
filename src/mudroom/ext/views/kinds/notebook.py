"""A Jupyter notebook as cells: sources as texts, outputs folded (nbformat 4)."""

from __future__ import annotations

import json
from collections import Counter

from mudroom.core.text.linediff import diff_lines
from mudroom.core.text.plural import amount, counted
from mudroom.ext.views.kinds.row import FileView, FileViewRow, NoView, cut, kind_of_row, summed, text_lines
from mudroom.typing import Any, NamedTuple


class Cell(NamedTuple):
    number: int
    """From 1."""
    id: str
    type: str
    source: str
    outputs: str
    """As JSON text, without execution counts."""
    output_count: int
    metadata: str
    executed: object
    """Its execution count."""


def view(path: bytes, before: bytes | None, after: bytes | None) -> FileView:
    del path
    (old, old_rest), (new, new_rest) = _cells(before, "old"), _cells(after, "new")
    pairs = _pairs(old, new)
    rows = [row for pair in pairs if (row := _row(*pair)) is not None]
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    notes: list[str] = []
    for noun, count in (
        ("execution count", sum(one.executed != other.executed for one, other in both)),
        ("cell's metadata", sum(one.metadata != other.metadata for one, other in both)),
    ):
        if count:
            notes.append(f"{count:,} {noun if count == 1 else noun.replace('count', 'counts')} changed, folded")
    keys = sorted(key for key in old_rest.keys() | new_rest.keys() if old_rest.get(key) != new_rest.get(key))
    if keys and before is not None and after is not None:
        notes.append(f"of the notebook itself changed: {', '.join(keys)}")
    return FileView("notebook", summed(rows, "no cell's source or output changed"), cut(rows, notes, "cell"), notes)


def _cells(data: bytes | None, side: str) -> tuple[list[Cell], dict[str, str]]:
    """Return the cells, and the other keys as JSON texts."""
    if data is None:
        return [], {}
    try:
        book = json.loads(data)
        if not isinstance(book["cells"], list):
            raise TypeError
        cells = [_cell(number, cell) for number, cell in enumerate(book["cells"], 1)]
        return cells, {key: json.dumps(value, sort_keys=True) for key, value in book.items() if key != "cells"}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise NoView(f"the {side} text is not a notebook of nbformat 4") from None


def _cell(number: int, cell: dict[str, Any]) -> Cell:
    outputs = [{**output, "execution_count": None} for output in cell.get("outputs", ())]
    return Cell(
        number,
        str(cell.get("id", "")),
        str(cell["cell_type"]),
        _joined(cell.get("source", "")),
        json.dumps([outputs, cell.get("attachments")], sort_keys=True),
        len(outputs),
        json.dumps(cell.get("metadata"), sort_keys=True),
        cell.get("execution_count"),
    )


def _joined(source: object) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


_Pair = tuple[Cell | None, Cell | None]


def _pairs(old: list[Cell], new: list[Cell]) -> list[_Pair]:
    """Return the cells in the new order, each with its old version: by id if both sides have it once, else by content,
    else by place between equal cells if a line is the same. Removed cells stand where they were."""
    before: dict[int, Cell] = {}
    ids = [{cell.id: cell for cell in reversed(side) if cell.id} for side in (old, new)]
    often = {name for side in (old, new) for name, times in Counter(cell.id for cell in side).items() if times > 1}
    shared = (ids[0].keys() & ids[1].keys()) - often
    before = {ids[1][name].number: ids[0][name] for name in shared}
    left = [cell for cell in old if cell.id not in shared], [cell for cell in new if cell.id not in shared]
    at = [0, 0]
    texts = [[(cell.type, cell.source) for cell in side] for side in left]
    for block in (*diff_lines(*texts), None):
        ends = (block.old_start, block.new_start) if block is not None else (len(left[0]), len(left[1]))
        for one, other in zip(left[0][at[0] : ends[0]], left[1][at[1] : ends[1]], strict=True):
            before[other.number] = one
        if block is not None:
            for one, other in zip(left[0][ends[0] : block.old_end], left[1][ends[1] : block.new_end], strict=False):
                if one.type == other.type and set(one.source.split("\n")) & set(other.source.split("\n")):
                    before[other.number] = one
            at = [block.old_end, block.new_end]
    kept = {cell.number for cell in before.values()}
    rows: list[tuple[float, _Pair]] = [(cell.number, (before.get(cell.number), cell)) for cell in new]
    rows += [(cell.number - 0.5, (cell, None)) for cell in old if cell.number not in kept]
    return [pair for _place, pair in sorted(rows, key=lambda row: row[0])]


def _row(old: Cell | None, new: Cell | None) -> FileViewRow | None:
    cell = new or old
    assert cell is not None
    label = f"cell {cell.number} ({cell.type})"
    if old is None or new is None:
        source = cell.source.encode("utf-8", "surrogatepass")
        lines = text_lines(b"", source) if old is None else text_lines(source, b"")
        note = f"{counted(cell.output_count, 'output')}, {amount(len(cell.outputs))}" if cell.output_count else ""
        return FileViewRow(kind_of_row(old, new), label, note=note, lines=lines)
    notes = [f"was cell {old.number}"] if old.id and old.id == new.id and old.number != new.number else []
    if old.type != new.type:
        notes.append(f"was {old.type}")
    if old.outputs != new.outputs:
        sizes = old.output_count, new.output_count
        what = f"{sizes[0]} → {sizes[1]}" if sizes[0] != sizes[1] else counted(sizes[0], "output")
        notes.append(f"outputs changed ({what}), {amount(len(new.outputs))}")
    if old.source == new.source and (old.type, old.outputs) == (new.type, new.outputs):
        return None
    sides = (side.source.encode("utf-8", "surrogatepass") for side in (old, new))
    return FileViewRow("changed", label, note="; ".join(notes), lines=text_lines(*sides))
