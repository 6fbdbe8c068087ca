"""What somebody makes of the conflicting places of a text, one by one, as the bytes of the whole.

A place is decided for a side, or by lines instead. Those come from a person's editor, so without line ends: a line that
the project has there is taken as it is, and every other ends as the project's first line does. Where the file ends, it
ends with a newline or without as the project's does. If the project has nothing there, the fork's lines tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.diff3 import Chunk, Merged
from mudroom.core.marker import Side, resolve

Choice = Side | list[str]


def resolved(merged: Merged, choices: Sequence[Choice]) -> bytes:
    """The whole text. Raises ValueError, with the reason in words, if there are not as many choices as conflicts, or a
    line is none."""
    if len(choices) != merged.conflicts:
        raise ValueError(f"there are {merged.conflicts} places to decide, and {len(choices)} were decided")
    places = [chunk for chunk in merged.chunks if chunk.kind == "conflict"]
    last = merged.chunks[-1] if merged.chunks else None
    given: Mapping[int, Side | bytes] = {
        number: choice if isinstance(choice, str) else _lines(chunk, choice, is_last=chunk is last)
        for number, (chunk, choice) in enumerate(zip(places, choices, strict=True))
    }
    return resolve(merged, given).content()


def _lines(chunk: Chunk, lines: Sequence[str], *, is_last: bool) -> bytes:
    end = end_of(chunk)
    known: dict[bytes, list[bytes]] = {}
    for raw in next((side for side in (chunk.ours, chunk.theirs, chunk.base) if side), ()):
        known.setdefault(_bare(raw), []).append(raw)
    found = [_line(text, end, known) for text in lines]
    if not found:
        return b""
    sides = [side for side in (chunk.ours, chunk.theirs, chunk.base) if side]
    if is_last and sides and not sides[0][-1].endswith(b"\n"):
        found[-1] = _bare(found[-1])
    return b"".join(found)


def _line(text: str, end: bytes, known: Mapping[bytes, list[bytes]]) -> bytes:
    if "\n" in text:
        raise ValueError("a line has no newline in it")
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise ValueError("a line is no text") from None
    bare = raw.removesuffix(b"\r") if end == b"\r\n" else raw
    alike = known.get(bare, [b""])
    same = alike.pop(0) if len(alike) > 1 else alike[0]
    return same if same.endswith(b"\n") else bare + end


def _bare(raw: bytes) -> bytes:
    """Without its end."""
    return raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")


def end_of(chunk: Chunk) -> bytes:
    """How lines end in it."""
    first = next((side[0] for side in (chunk.ours, chunk.theirs, chunk.base) if side), b"")
    return b"\r\n" if first.endswith(b"\r\n") else b"\n"
