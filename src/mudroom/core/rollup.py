"""Which directories stand for all that is in them, when changes are shown.

``npm install`` changes thousands of files; a reader wants to know of ``package.json`` and that ``node_modules/`` came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mudroom.core.change import Change, listed
from mudroom.core.path import ancestors

MANY = 10
"""A directory that came or went whole is shown as one line if it has more files than this."""


class Roll(NamedTuple):
    """One directory and what changed below it, in files."""

    path: bytes
    added: int
    modified: int
    deleted: int
    renamed: int
    size: int
    """Bytes of the staged files."""


def whole_directories(changes: Sequence[Change]) -> list[bytes]:
    """The topmost directories that were added or deleted as a whole and hold more than ``MANY`` files."""
    tops: list[bytes] = []
    counts: dict[bytes, int] = {}
    current = b""
    for change in changes:
        if current and change.path.startswith(current + b"/"):
            counts[current] += change.entry.kind != "directory"
        elif change.entry.kind == "directory" and change.verb in ("added", "deleted"):
            current = change.path
            tops.append(current)
            counts[current] = 0
    return [top for top in tops if counts[top] > MANY]


def roll_up(changes: Sequence[Change], lines: int) -> tuple[list[Change], list[Roll]]:
    """Split into changes to show one by one and directories to show as one line.

    Directories that came or went whole always roll up; then, while there are more than ``lines`` rows, the
    directory at the top level that stands for the most.
    """
    rest = listed(changes)
    tops = whole_directories(changes)
    while len(rest_after(rest, tops)) + len(tops) > lines:
        heavy = _heaviest(rest_after(rest, tops))
        if heavy is None:
            break
        tops = [top for top in tops if not top.startswith(heavy + b"/")] + [heavy]
    rolls = [_roll(top, [c for c in rest if c.path.startswith(top + b"/")]) for top in sorted(tops)]
    return rest_after(rest, tops), rolls


def rest_after(changes: Sequence[Change], tops: Sequence[bytes]) -> list[Change]:
    covered = set(tops)
    return [c for c in changes if c.path not in covered and covered.isdisjoint(ancestors(c.path))]


def _heaviest(changes: Sequence[Change]) -> bytes | None:
    counts: dict[bytes, int] = {}
    for change in changes:
        top = change.path.split(b"/", 1)[0]
        if top != change.path:
            counts[top] = counts.get(top, 0) + 1
    heavy = max(counts, key=lambda top: (counts[top], top), default=None)
    return heavy if heavy is not None and counts[heavy] > 1 else None


def _roll(top: bytes, below: Sequence[Change]) -> Roll:
    verbs = [change.verb for change in below]
    size = sum(change.staged.size for change in below if change.staged is not None)
    return Roll(top, *(verbs.count(verb) for verb in ("added", "modified", "deleted", "renamed")), size)
