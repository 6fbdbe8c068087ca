"""Which steps the lines of a hunk can come from. Pure.

Contents are known of some steps only: of those whose digest is that of a sealed layer's file, or of the file as it is
now. Each line that a hunk adds or removes came between two known contents; every step between them that changed the
path is possible. This is observed, not a cause: a command writes what another one has left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mudroom.core.text.hunk import Hunk
from mudroom.core.text.linediff import diff_lines
from mudroom.ext.reasons.core.step import PathTouch, Step
from mudroom.typing import NamedTuple

Lines = Sequence[bytes]
_Touches = Sequence[tuple[int, PathTouch]]


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
    is_certain: bool
    """Whether each of them changed a line of the hunk; otherwise some of them did."""
    earlier: tuple[int, ...]
    """Other steps that changed the path."""
    since: bool = False
    """Whether the hunk may come from a change after the last step that is recorded."""


def blame(steps: Sequence[Step], path: bytes, hunks: Sequence[Hunk | None], versions: FileVersions) -> Iterator[Blame]:
    """Yield the possible steps of each hunk; None: of the whole file, by its last step."""
    touches = [(number, touch) for number, step in enumerate(steps) if (touch := step.touch(path)) is not None]
    if not touches:
        yield from (Blame((), False, ()) for _hunk in hunks)
        return
    if hunks[0] is not None:
        touches = [row for row in touches if row[1].kind != "mode"] or touches
    last = touches[-1][1]
    is_known = versions.digest is not None and bool(last.digest or last.kind == "deleted")
    since = is_known and last.digest != versions.digest
    whole = (len(touches) - 2, len(touches) - 1 + since)
    ends, came, went = _origins(touches, versions, since=since)
    for hunk in hunks:
        numbers: set[int] = set()
        if hunk is not None:
            numbers = {came[at] for at in added_lines(hunk)} | {went[at] for at in _only_removed(hunk)}
        spans = [(ends[number - 1], ends[number]) for number in sorted(numbers - {0})]
        yield _named(steps, touches, spans or [whole])


def _named(steps: Sequence[Step], touches: _Touches, spans: Sequence[tuple[int, int]]) -> Blame:
    """Return the steps in these spans of ``touches``: after the first place, until the second. The place after the last
    stands for a change that is not recorded."""
    parts = [{number for number, _touch in touches[low + 1 : high + 1]} for low, high in spans]
    chosen = set().union(*parts)
    beside = {other for other, _touch in touches for number in chosen if _overlap(steps[other], steps[number])}
    since = any(high >= len(touches) for _low, high in spans)
    is_certain = all(len(part) == 1 for part in parts) and beside <= chosen and not since
    rest = tuple(number for number, _touch in touches if number not in chosen | beside)
    return Blame(tuple(sorted(chosen | beside)), is_certain, rest, since)


def _origins(touches: _Touches, versions: FileVersions, *, since: bool) -> tuple[list[int], list[int], list[int]]:
    """Return the places in ``touches`` with a known content, from the base's, -1, on. Return for each line now with
    which of them it came, and for each line of the base with which it went; 0: it did not."""
    known = {-1: versions.base, len(touches) - 1 + since: versions.now}
    for place, (_number, touch) in enumerate(touches):
        if touch.digest in versions.by_digest:
            known.setdefault(place, versions.by_digest[touch.digest])
    ends = sorted(known)
    before = [*known[-1]]
    came, went = [0] * len(before), [0] * len(before)
    base = list(range(len(before)))
    """Of each line its number in the base; -1: it is not of the base."""
    for number, place in enumerate(ends[1:], 1):
        at, came_now, base_now = 0, list[int](), list[int]()
        after = [*known[place]]
        for block in diff_lines(before, after):
            came_now += came[at : block.old_start] + [number] * (block.new_end - block.new_start)
            base_now += base[at : block.old_start] + [-1] * (block.new_end - block.new_start)
            for line in base[block.old_start : block.old_end]:
                if line >= 0:
                    went[line] = number
            at = block.old_end
        before, came, base = after, came_now + came[at:], base_now + base[at:]
    return ends, came, went


def _first(hunk: Hunk, side: int) -> int:
    """Return the number of a hunk's first line in the old (1) or the new content (2), from 0."""
    first, _comma, count = hunk.header.split(b" ")[side][1:].partition(b",")
    return int(first) - (count != b"0")


def added_lines(hunk: Hunk) -> list[int]:
    """Return the numbers of a hunk's added lines, from 0."""
    kept = [line for line in hunk.lines if line[:1] != b"-"]
    return [at for at, line in enumerate(kept, _first(hunk, 2)) if line[:1] == b"+"]


def _only_removed(hunk: Hunk) -> list[int]:
    """Return the numbers of a hunk's removed lines that no added lines replace, from 0."""
    at, run, lines = _first(hunk, 1), list[int](), list[int]()
    for line in (*hunk.lines, b" "):
        if line[:1] == b"-":
            run.append(at)
        elif line[:1] == b"+":
            run = []
        else:
            lines, run = lines + run, []
        at += line[:1] != b"+"
    return lines


def added_ranges(hunk: Hunk) -> list[tuple[int, int]]:
    """Return the first and the last line of each run of added lines, counted from 1."""
    ranges: list[tuple[int, int]] = []
    for at in added_lines(hunk):
        first = ranges.pop()[0] if ranges and ranges[-1][1] == at else at + 1
        ranges.append((first, at + 1))
    return ranges


def _overlap(one: Step, other: Step) -> bool:
    """Return whether two steps were at work at once: then each one's event has the changes of both."""
    return one.event != other.event and one.began < other.ended and other.began < one.ended
