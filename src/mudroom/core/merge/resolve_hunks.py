"""Resolution of a text's conflicts, one by one, into the whole text's bytes.

A conflict is resolved by a side or by lines that replace it. Such lines come from an editor, without line ends. A line
that the project has in the conflict is taken from there with its line end; among several equal lines, the one that a
comparison matches. Every other line ends like the project's first line there. At the end of the file, the project's
version decides whether there is a final newline. If the project has no lines in the conflict, the fork's lines decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.merge.diff3 import Chunk, Lines, MergedText
from mudroom.core.merge.marker import resolve
from mudroom.core.merge.resolution_words import Choice, Side
from mudroom.core.text.linediff import Block, diff_lines


def resolve_text(merged: MergedText, choices: Sequence[Choice]) -> bytes:
    """Return the resolved text. Raise ValueError with a reason if the number of choices differs from the number of
    conflicts, or if a line is not valid."""
    if len(choices) != merged.conflicts:
        raise ValueError(f"there are {merged.conflicts} places to decide, and {len(choices)} were decided")
    places = [chunk for chunk in merged.chunks if chunk.kind == "conflict"]
    last = merged.chunks[-1] if merged.chunks else None
    resolutions: Mapping[int, Side | bytes] = {
        number: choice if isinstance(choice, str) else lines_at(chunk, choice, is_last=chunk is last)
        for number, (chunk, choice) in enumerate(zip(places, choices, strict=True))
    }
    return resolve(merged, resolutions).content()


def lines_at(chunk: Chunk, lines: Sequence[str], *, is_last: bool) -> bytes:
    """Return the bytes for lines that replace a conflict. ``is_last``: the conflict is the end of the text."""
    return rewrite_lines(side_at(chunk), lines, keeps_end=is_last)


def side_at(chunk: Chunk) -> Lines:
    """Return the lines whose line ends the replacing lines take over."""
    return chunk.ours or chunk.theirs or chunk.base


def rewrite_lines(before: Sequence[bytes], lines: Sequence[str], *, keeps_end: bool = True) -> bytes:
    """Return lines from an editor as bytes that replace the lines ``before``. With ``keeps_end``, the result has a
    final newline only if ``before`` has. Raise ValueError if a line is not valid."""
    end = _end_of(before)
    edited = [_bytes_of(text, end) for text in lines]
    result = [
        raw if raw.endswith(b"\n") else edited_line + end
        for edited_line, raw in zip(edited, _matching_lines(before, edited), strict=True)
    ]
    if result and keeps_end and before and not before[-1].endswith(b"\n"):
        result[-1] = _bare(result[-1])
    return b"".join(result)


def editable_lines(before: Sequence[bytes], after: Sequence[bytes], *, keeps_end: bool) -> list[str] | None:
    """Return the lines for an editor from which ``rewrite_lines`` makes exactly ``after``, or None if there are no such
    lines."""
    try:
        # a CR before the newline can belong to the line or to its end: try both
        for strip in (_bare, _without_newline):
            texts = [strip(raw).decode() for raw in after]
            if rewrite_lines(before, texts, keeps_end=keeps_end) == b"".join(after):
                return texts
    except UnicodeDecodeError:
        pass
    return None


def _bytes_of(text: str, end: bytes) -> bytes:
    """Return a line from an editor as bytes, without its end. Raise ValueError if the line contains a newline or is not
    valid text."""
    if "\n" in text:
        raise ValueError("a line has no newline in it")
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise ValueError("a line is not valid text") from None
    return raw.removesuffix(b"\r") if end == b"\r\n" else raw


def _matching_lines(before: Sequence[bytes], edited: Sequence[bytes]) -> list[bytes]:
    """Return, for each edited line, the equal line in ``before``, or empty bytes if there is none. A moved or repeated
    line gets the first equal line that lost its place, otherwise the last equal line."""
    bare = [_bare(raw) for raw in before]
    matches = [b""] * len(edited)
    displaced: dict[bytes, list[bytes]] = {}
    old_start = new_start = 0
    end = Block(len(before), len(before), len(edited), len(edited))
    for old, old_end, new, new_end in (*diff_lines(bare, edited), end):
        matches[new_start:new] = before[old_start:old]
        for raw in before[old:old_end]:
            displaced.setdefault(_bare(raw), []).append(raw)
        old_start, new_start = old_end, new_end
    last = dict(zip(bare, before, strict=True))
    for number, line in enumerate(edited):
        if not matches[number]:
            equal = displaced.get(line)
            matches[number] = equal.pop(0) if equal else last.get(line, b"")
    return matches


def _bare(raw: bytes) -> bytes:
    return raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")


def _without_newline(raw: bytes) -> bytes:
    return raw.removesuffix(b"\n")


def _end_of(lines: Sequence[bytes]) -> bytes:
    """Return the first line's end, or a newline if there is no line."""
    return b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
