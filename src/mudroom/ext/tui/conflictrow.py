"""A conflict as rows: one place's sides and result, or type and size for files that cannot be merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mudroom.core.merge.diff3 import Chunk, MergedText
from mudroom.core.merge.marker import chosen_lines, why_not_mergeable
from mudroom.core.merge.read_resolution import read_choices
from mudroom.core.merge.resolution_words import OPEN, Choice, take_words
from mudroom.core.merge.resolve_hunks import lines_at
from mudroom.core.text.linediff import split_lines
from mudroom.core.tree.path import show_path
from mudroom.ext.tui.line import pieces
from mudroom.ext.tui.pane import Pieces

if TYPE_CHECKING:
    from mudroom.session import ForkConflict

CONTEXT_LINES = 3
"""Context lines shown before and after a place."""
MOST_LINES = 2_000
"""Maximum lines shown."""


def decision_words(conflict: ForkConflict) -> str:
    return take_words(conflict.take) if conflict.decided else OPEN


def decided_choices(conflict: ForkConflict, merged: MergedText | None) -> dict[int, Choice]:
    """Return the choice for each place; empty if the conflict is undecided, or was not decided place by place."""
    content = conflict.result
    choices = read_choices(merged, content) if merged is not None and content is not None else None
    return dict(enumerate(choices or ()))


def rows_of_side(merged: MergedText, place: int, side: str) -> list[Pieces]:
    """Return one side of a place, with a few context lines."""
    chunks = merged.chunks
    chunk_number = [number for number, chunk in enumerate(chunks) if chunk.kind == "conflict"][place]
    before = [
        line
        for chunk in chunks[max(0, chunk_number - CONTEXT_LINES) : chunk_number]
        for line in _side_lines(chunk, side)
    ][-CONTEXT_LINES:]
    after = [
        line
        for chunk in chunks[chunk_number + 1 : chunk_number + 1 + CONTEXT_LINES]
        for line in _side_lines(chunk, side)
    ][:CONTEXT_LINES]
    style = "removed" if side == "base" else "added"
    return [*_dim(before), *_marked_rows(_side_lines(chunks[chunk_number], side), style), *_dim(after)]


def _side_lines(chunk: Chunk, side: str) -> tuple[bytes, ...]:
    return {"base": chunk.base, "ours": chunk.ours, "theirs": chunk.theirs}[side]


def rows_of_version(conflict: ForkConflict, side: str, *, masked: bool) -> list[Pieces]:
    """Return rows for a version that cannot be merged. ``masked``: its content is hidden."""
    version = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs}[side]
    entry = version.entry
    if entry is None:
        return [[("no file" if conflict.reason else "", "dim")]]
    rows: list[Pieces] = [[(f"{entry.kind}, {entry.size:,} bytes, {entry.mode:04o}", "head")]]
    if version.path != conflict.path:
        rows.append([(f"at {show_path(version.path)}", "warn")])
    if entry.kind == "symlink":
        rows.append([(f"to {show_path(entry.target)}", "")])
    if masked:
        rows.append([("a secret: it is not shown", "warn")])
    elif version.content is not None and b"\0" not in version.content:
        lines = version.content[: 1 << 20].split(b"\n")[:MOST_LINES]
        rows += [_line(line + b"\n", "") for line in lines]
    return rows


def rows_of_place(merged: MergedText, choices: Mapping[int, Choice], place: int) -> list[Pieces]:
    """Return a place with its choice and context."""
    chunks = merged.chunks
    numbers = [chunk_number for chunk_number, chunk in enumerate(chunks) if chunk.kind == "conflict"]
    chunk_number = numbers[place]
    lines = {
        number: _chosen_lines(merged, number, choices.get(numbers.index(number)))
        if number in numbers
        else chunks[number].outcome
        for number in range(max(0, chunk_number - CONTEXT_LINES), min(len(chunks), chunk_number + CONTEXT_LINES + 1))
    }
    before = [line for number in lines if number < chunk_number for line in lines[number]][-CONTEXT_LINES:]
    after = [line for number in lines if number > chunk_number for line in lines[number]][:CONTEXT_LINES]
    return [*_dim(before), *_marked_rows(lines[chunk_number], "added"), *_dim(after)]


def _chosen_lines(merged: MergedText, number: int, choice: Choice | None) -> Sequence[bytes]:
    """Return the lines of a conflict for a choice."""
    chunk = merged.chunks[number]
    is_last = number + 1 == len(merged.chunks)
    if isinstance(choice, list):
        return split_lines(b"".join(chosen_lines(chunk, lines_at(chunk, choice, is_last=is_last), is_last=is_last)))
    return chosen_lines(chunk, choice, is_last=is_last) if choice is not None else ()


def rows_of_all(conflict: ForkConflict) -> list[Pieces]:
    """Return the result of a conflict that was not decided place by place."""
    content = conflict.result
    if content is None:
        return [[("the file will be gone", "dim")]] if conflict.take == "delete" else []
    if why_not_mergeable(content):
        return [[(f"{len(content):,} bytes", "head")]]
    lines = split_lines(content)
    return [_line(line, "") for line in lines[:MOST_LINES]] + _more(len(lines))


def _marked_rows(lines: Sequence[bytes], style: str) -> list[Pieces]:
    rows: list[Pieces] = [[("▐ ", style), *_line(line, style)] for line in lines[:MOST_LINES]]
    return (rows or [[("▐ (nothing)", "dim")]]) + _more(len(lines))


def _more(count: int) -> list[Pieces]:
    return [[(f"… {count - MOST_LINES:,} more lines", "odd")]] if count > MOST_LINES else []


def _dim(lines: list[bytes]) -> list[Pieces]:
    return [_line(line, "dim") for line in lines]


def _line(line: bytes, style: str) -> Pieces:
    return [(piece.text, "odd" if piece.odd else style) for piece in pieces(line)]
