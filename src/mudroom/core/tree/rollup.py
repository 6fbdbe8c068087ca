"""Directories that are shown as one row instead of all the changes in them.

``npm install`` changes thousands of files; the reader wants to see ``package.json`` and that ``node_modules/`` was
added.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.tree.change import Change, counted_changes
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import ancestors, is_below, sort_key
from mudroom.typing import NamedTuple

MANY = 10
"""An added or deleted directory is shown as one row if it has more files than this."""


class Roll(NamedTuple):
    """A directory and how many files changed below it."""

    path: bytes
    added: int
    modified: int
    deleted: int
    renamed: int
    size: int
    """Bytes in the fork's files."""
    sources: tuple[bytes, ...] = ()
    """Old paths of files that were renamed into the directory from elsewhere: no other row tells that they are
    removed."""


def whole_directories(changes: Sequence[Change]) -> list[bytes]:
    """Return the topmost directories that were added or deleted as a whole and contain more than ``MANY`` files.

    ``changes`` are in walking order (``sort_key``).
    """
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
    """Return the changes that are shown as single rows, and the directories that are shown as one row each.

    Directories that were added or deleted as a whole always roll up, and so do repositories (``.git``). While more than
    ``lines`` rows remain, the top-level directory with the most rows is rolled up as well.
    """
    groups: dict[bytes, list[Change]] = {top: [] for top in whole_directories(changes)}
    groups |= {git: [] for change in changes if (git := git_directory(change.path)) is not None}
    rows: list[Change] = []
    for change in counted_changes(changes):
        top = next((above for above in (*ancestors(change.path), change.path) if above in groups), None)
        # A group inside another group stays empty: the outer group comes first.
        (rows if top is None else groups[top]).append(change)
    groups = {top: inside for top, inside in groups.items() if inside}
    while len(rows) + len(groups) > lines:
        heaviest = _heaviest([*(change.path for change in rows), *groups])
        if heaviest is None:
            break
        inside = [change for change in rows if is_below(change.path, heaviest)]
        rows = [change for change in rows if not is_below(change.path, heaviest)]
        for top in [top for top in groups if is_below(top, heaviest)]:
            inside += groups.pop(top)
        groups[heaviest] = inside
    return rows, [_roll(top, groups[top]) for top in sorted(groups, key=sort_key)]


def _heaviest(paths: Sequence[bytes]) -> bytes | None:
    counts: dict[bytes, int] = {}
    for path in paths:
        top = path.split(b"/", 1)[0]
        counts[top] = counts.get(top, 0) + (top != path)
    heaviest = max(counts, key=lambda top: (counts[top], top), default=None)
    return heaviest if heaviest is not None and counts[heaviest] else None


def _roll(top: bytes, below: Sequence[Change]) -> Roll:
    verbs = [change.verb for change in below]
    size = sum(change.staged.size for change in below if change.staged is not None)
    counts = (verbs.count("added"), verbs.count("modified"), verbs.count("deleted"), verbs.count("renamed"))
    sources = (change.source for change in below if change.source and not is_below(change.source, top))
    return Roll(top, *counts, size, tuple(sources))
