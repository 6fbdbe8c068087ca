"""A conflict as rows: the sides of the place that is looked at, and what comes of it; of what cannot be merged, what it
is."""

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
from mudroom.tui.line import pieces
from mudroom.tui.pane import Pieces

if TYPE_CHECKING:
    from mudroom.session import ForkConflict

AROUND = 3
"""Lines of what comes before and behind that are shown."""
MOST = 2_000
"""Lines that are shown."""


def said_of_all(conflict: ForkConflict) -> str:
    return take_words(conflict.take) if conflict.decided else OPEN


def decided_choices(conflict: ForkConflict, merged: MergedText | None) -> dict[int, Choice]:
    """By place; none if it was decided in another way, or is not."""
    content = conflict.result
    found = read_choices(merged, content) if merged is not None and content is not None else None
    return dict(enumerate(found or ()))


def rows_of_side(merged: MergedText, place: int, side: str) -> list[Pieces]:
    """One side of a place, with a few lines of what is before and behind it."""
    chunks = merged.chunks
    at = [number for number, chunk in enumerate(chunks) if chunk.kind == "conflict"][place]
    before = [line for chunk in chunks[max(0, at - AROUND) : at] for line in _of(chunk, side)][-AROUND:]
    behind = [line for chunk in chunks[at + 1 : at + 1 + AROUND] for line in _of(chunk, side)][:AROUND]
    style = "removed" if side == "base" else "added"
    return [*_dim(before), *_here(_of(chunks[at], side), style), *_dim(behind)]


def _of(chunk: Chunk, side: str) -> tuple[bytes, ...]:
    return {"base": chunk.base, "ours": chunk.ours, "theirs": chunk.theirs}[side]


def rows_of_version(conflict: ForkConflict, side: str, *, masked: bool) -> list[Pieces]:
    """Of what cannot be merged: what it is. ``masked``: nothing of it is shown."""
    version = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs}[side]
    entry = version.entry
    if entry is None:
        return [[("nothing is there" if conflict.reason else "", "dim")]]
    rows: list[Pieces] = [[(f"{entry.kind}, {entry.size:,} bytes, {entry.mode:04o}", "head")]]
    if version.path != conflict.path:
        rows.append([(f"at {show_path(version.path)}", "warn")])
    if entry.kind == "symlink":
        rows.append([(f"to {show_path(entry.target)}", "")])
    if masked:
        rows.append([("a secret: it is not shown", "warn")])
    elif version.content is not None and b"\0" not in version.content:
        lines = version.content[: 1 << 20].split(b"\n")[:MOST]
        rows += [_line(line + b"\n", "") for line in lines]
    return rows


def rows_of_place(merged: MergedText, choices: Mapping[int, Choice], place: int) -> list[Pieces]:
    """The place with its choice, and what is around it."""
    chunks = merged.chunks
    numbers = [at for at, chunk in enumerate(chunks) if chunk.kind == "conflict"]
    at = numbers[place]
    lines = {
        other: _made(merged, other, choices.get(numbers.index(other))) if other in numbers else chunks[other].outcome
        for other in range(max(0, at - AROUND), min(len(chunks), at + AROUND + 1))
    }
    before = [line for other in lines if other < at for line in lines[other]][-AROUND:]
    behind = [line for other in lines if other > at for line in lines[other]][:AROUND]
    return [*_dim(before), *_here(lines[at], "added"), *_dim(behind)]


def _made(merged: MergedText, at: int, choice: Choice | None) -> Sequence[bytes]:
    """Of a conflict."""
    chunk = merged.chunks[at]
    is_last = at + 1 == len(merged.chunks)
    if isinstance(choice, list):
        return split_lines(b"".join(chosen_lines(chunk, lines_at(chunk, choice, is_last=is_last), is_last=is_last)))
    return chosen_lines(chunk, choice, is_last=is_last) if choice is not None else ()


def rows_of_all(conflict: ForkConflict) -> list[Pieces]:
    """Of what was not decided place by place."""
    content = conflict.result
    if content is None:
        return [[("the file will be gone", "dim")]] if conflict.take == "delete" else []
    if why_not_mergeable(content):
        return [[(f"{len(content):,} bytes", "head")]]
    lines = split_lines(content)
    return [_line(line, "") for line in lines[:MOST]] + _more(len(lines))


def _here(lines: Sequence[bytes], style: str) -> list[Pieces]:
    rows: list[Pieces] = [[("▐ ", style), *_line(line, style)] for line in lines[:MOST]]
    return (rows or [[("▐ (nothing)", "dim")]]) + _more(len(lines))


def _more(count: int) -> list[Pieces]:
    return [[(f"… {count - MOST:,} more lines", "odd")]] if count > MOST else []


def _dim(lines: list[bytes]) -> list[Pieces]:
    return [_line(line, "dim") for line in lines]


def _line(line: bytes, style: str) -> Pieces:
    return [(piece.text, "odd" if piece.odd else style) for piece in pieces(line)]
