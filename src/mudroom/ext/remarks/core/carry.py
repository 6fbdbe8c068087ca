"""Where a text's lines are in a later version of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.text.linediff import diff_lines
from mudroom.typing import Literal, NamedTuple


class CarriedLines(NamedTuple):
    state: Literal["here", "answered", "outdated"]
    """``here``: unchanged, perhaps at other numbers; ``answered``: changed; ``outdated``: gone."""
    first: int
    """From 1. Of lines that are gone: the line that follows."""
    last: int
    """Of lines that are gone: one less than ``first``."""


def carry(old: Sequence[bytes], new: Sequence[bytes], first: int, last: int) -> CarriedLines:
    """Return the place of the old lines ``first`` to ``last`` (from 1, both included) in the new text."""
    start, end = first - 1, last
    blocks = diff_lines(old, new)
    touched = [block for block in blocks if block.old_start < end and block.old_end > start]
    above = [block for block in blocks if block.old_end <= start]
    shift = above[-1].new_end - above[-1].old_end if above else 0
    if not touched:
        return CarriedLines("here", first + shift, last + shift)
    lines = list(old[start:end])
    there = _places(new, lines)
    if len(there) == 1 and len(_places(old, lines)) == 1:  # they have been moved as they are
        return CarriedLines("here", there[0] + 1, there[0] + len(lines))
    head, tail = touched[0], touched[-1]
    begin = head.new_start if head.old_start < start else start + shift
    until = tail.new_end if tail.old_end > end else end + tail.new_end - tail.old_end
    return CarriedLines("answered" if until > begin else "outdated", begin + 1, max(until, begin))


def _places(text: Sequence[bytes], lines: Sequence[bytes]) -> list[int]:
    """Return the indexes at which the lines begin in a text; none for lines without a letter or digit."""
    if not any(character.isalnum() for line in lines for character in line.decode("utf-8", "replace")):
        return []
    count = len(lines)
    return [at for at, line in enumerate(text) if line == lines[0] and list(text[at : at + count]) == list(lines)]
