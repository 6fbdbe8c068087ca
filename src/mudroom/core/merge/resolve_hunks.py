"""What somebody makes of the conflicting places of a text, one by one, as the bytes of the whole.

A place is decided for a side, or by lines instead. Those come from a person's editor, so without line ends: a line that
the project has there is taken as it is (of equal ones the one that a comparison leaves in its place), and every other
ends as the project's first line does. Where the file ends, it
ends with a newline or without as the project's does. If the project has nothing there, the fork's lines tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.merge.diff3 import Chunk, Lines, MergedText
from mudroom.core.merge.marker import resolve
from mudroom.core.merge.resolution_words import Choice, Side
from mudroom.core.text.linediff import Block, diff_lines


def resolved(merged: MergedText, choices: Sequence[Choice]) -> bytes:
    """The whole text. Raises ValueError, with the reason in words, if there are not as many choices as conflicts, or a
    line is none."""
    if len(choices) != merged.conflicts:
        raise ValueError(f"there are {merged.conflicts} places to decide, and {len(choices)} were decided")
    places = [chunk for chunk in merged.chunks if chunk.kind == "conflict"]
    last = merged.chunks[-1] if merged.chunks else None
    given: Mapping[int, Side | bytes] = {
        number: choice if isinstance(choice, str) else lines_at(chunk, choice, is_last=chunk is last)
        for number, (chunk, choice) in enumerate(zip(places, choices, strict=True))
    }
    return resolve(merged, given).content()


def lines_at(chunk: Chunk, lines: Sequence[str], *, is_last: bool) -> bytes:
    """Lines instead of a conflict. ``is_last``: of the text."""
    return rewritten(side_at(chunk), lines, keeps_end=is_last)


def side_at(chunk: Chunk) -> Lines:
    """Whose lines tell how others end there."""
    return chunk.ours or chunk.theirs or chunk.base


def rewritten(before: Sequence[bytes], lines: Sequence[str], *, keeps_end: bool = True) -> bytes:
    """Lines from an editor in the place of those before. ``keeps_end``: if these had no newline at their end, nor have
    those. Raises ValueError if a line is none."""
    end = _end_of(before)
    given = [_bytes_of(text, end) for text in lines]
    found = [raw if raw.endswith(b"\n") else bare + end for bare, raw in zip(given, _known(before, given), strict=True)]
    if found and keeps_end and before and not before[-1].endswith(b"\n"):
        found[-1] = _bare(found[-1])
    return b"".join(found)


def texts_of(before: Sequence[bytes], after: Sequence[bytes], *, keeps_end: bool) -> list[str] | None:
    """Lines for an editor of which ``rewritten`` makes these again; None: there are none."""
    try:
        for strip in (_bare, _without_newline):  # of a CR before the newline it is not told whose it is
            texts = [strip(raw).decode() for raw in after]
            if rewritten(before, texts, keeps_end=keeps_end) == b"".join(after):
                return texts
    except UnicodeDecodeError:
        pass
    return None


def _bytes_of(text: str, end: bytes) -> bytes:
    """A line from an editor, without its end."""
    if "\n" in text:
        raise ValueError("a line has no newline in it")
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise ValueError("a line is no text") from None
    return raw.removesuffix(b"\r") if end == b"\r\n" else raw


def _known(before: Sequence[bytes], given: Sequence[bytes]) -> list[bytes]:
    """For each line that is given the one of those before that it is; empty if it is none. What has been moved or
    repeated is the first equal one that is not in its place any more, else the last of all."""
    bare = [_bare(raw) for raw in before]
    found = [b""] * len(given)
    moved: dict[bytes, list[bytes]] = {}
    at = to = 0
    end = Block(len(before), len(before), len(given), len(given))
    for old, old_end, new, new_end in (*diff_lines(bare, given), end):
        found[to:new] = before[at:old]
        for raw in before[old:old_end]:
            moved.setdefault(_bare(raw), []).append(raw)
        at, to = old_end, new_end
    last = dict(zip(bare, before, strict=True))
    for number, line in enumerate(given):
        if not found[number]:
            alike = moved.get(line)
            found[number] = alike.pop(0) if alike else last.get(line, b"")
    return found


def _bare(raw: bytes) -> bytes:
    """Without its end."""
    return raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")


def _without_newline(raw: bytes) -> bytes:
    return raw.removesuffix(b"\n")


def _end_of(lines: Sequence[bytes]) -> bytes:
    """How they end."""
    return b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
