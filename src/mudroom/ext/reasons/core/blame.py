"""Which steps a hunk can come from: those after which the path had the hunk, and before which it had not. Pure.

Contents are known of some steps only: of those whose digest is that of a sealed layer's file, or of the file as it is
now. Between two known contents every step that changed the path is possible. This is observed, not a cause: a command
writes what another one has left to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mudroom.core.text.hunk import Hunk
from mudroom.ext.reasons.core.step import PathTouch, Step

Lines = Sequence[bytes]


class FileVersions(NamedTuple):
    """The contents of a path that are known."""

    digest: str | None
    """Of the content now; empty if the path is deleted, None if the content is not read."""
    now: Lines
    by_digest: Mapping[str, Lines]
    base: Lines


class Blame(NamedTuple):
    steps: tuple[int, ...]
    """Numbers of the possible steps, from 0, in order."""
    earlier: tuple[int, ...]
    """Other steps that changed the path."""
    since: bool = False
    """Whether the path has changed after the last step that is recorded."""


def blame(steps: Sequence[Step], path: bytes, hunk: Hunk | None, versions: FileVersions) -> Blame:
    """Return the possible steps of a hunk; None: of the whole file, by its last step."""
    touches = [(number, touch) for number, step in enumerate(steps) if (touch := step.touch(path)) is not None]
    if hunk is not None and any(touch.kind != "mode" for _number, touch in touches):
        touches = [(number, touch) for number, touch in touches if touch.kind != "mode"]
    if not touches:
        return Blame((), ())
    last = touches[-1][1]
    is_known = versions.digest is not None and (last.digest or last.kind == "deleted")
    since = bool(is_known) and last.digest != versions.digest
    low, high = (
        _range(touches, hunk, versions, since=since) if hunk is not None else (len(touches) - 2, len(touches) - 1)
    )
    chosen = {number for number, _touch in touches[low + 1 : high + 1]}
    chosen |= {
        other for other, _touch in touches for number in chosen if _overlap(steps[other], steps[number])
    }  # commands at once: each one's event has the changes of all
    rest = tuple(number for number, _touch in touches if number not in chosen)
    return Blame(tuple(sorted(chosen)), rest, since and (hunk is None or high >= len(touches)))


def _range(
    touches: Sequence[tuple[int, PathTouch]], hunk: Hunk, versions: FileVersions, *, since: bool
) -> tuple[int, int]:
    """Return the places in ``touches`` between which the hunk came: after the first, until the second. The place after
    the last stands for a change that is not recorded."""
    known: dict[int, Lines] = {-1: versions.base, len(touches) if since else len(touches) - 1: versions.now}
    for place, (_number, touch) in enumerate(touches):
        if touch.digest in versions.by_digest:
            known.setdefault(place, versions.by_digest[touch.digest])
    places = sorted(known)
    high = places.pop()
    while places and places[-1] >= 0 and _has(known[places[-1]], hunk):
        high = places.pop()
    return places[-1] if places else -1, high


def _has(lines: Lines, hunk: Hunk) -> bool:
    """Return whether a content has the hunk's added lines, and not its removed ones, block by block."""
    return all(
        (not added or _occurs(added, lines)) and (bool(added) or not _occurs(removed, lines))
        for removed, added in changed_lines(hunk)
    )


def changed_lines(hunk: Hunk) -> list[tuple[list[bytes], list[bytes]]]:
    """Return the removed and the added lines of each block of a hunk."""
    blocks: list[tuple[list[bytes], list[bytes]]] = []
    before = b" "
    for line in hunk.lines:
        sign = line[:1]
        if sign in b"+-" and (before == b" " or (before == b"+" and sign == b"-")):
            blocks.append(([], []))
        if sign in b"+-":
            blocks[-1][sign == b"+"].append(line[1:])
        before = sign if sign in b"+-" else b" "
    return blocks


def added_ranges(hunk: Hunk) -> list[tuple[int, int]]:
    """Return the first and the last line of each run of added lines, counted in the new content."""
    ranges: list[tuple[int, int]] = []
    at = int(hunk.header.split(b" ")[2][1:].partition(b",")[0])
    for line in hunk.lines:
        if line[:1] == b"+":
            first = ranges.pop()[0] if ranges and ranges[-1][1] == at - 1 else at
            ranges.append((first, at))
        at += line[:1] != b"-"
    return ranges


def _occurs(part: Sequence[bytes], lines: Lines) -> bool:
    wanted = [line.rstrip(b"\n") for line in part]
    there = [line.rstrip(b"\n") for line in lines]
    first, count = wanted[0], len(wanted)
    return any(line == first and there[at : at + count] == wanted for at, line in enumerate(there))


def _overlap(one: Step, other: Step) -> bool:
    return one.event != other.event and one.began < other.ended and other.began < one.ended
