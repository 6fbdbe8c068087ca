"""Which directories stand for all that is in them, when changes are shown.

``npm install`` changes thousands of files; a reader wants to know of ``package.json`` and that ``node_modules/`` came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mudroom.core.tree.change import Change, listed
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import ancestors, is_below, sort_key

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
    """The topmost directories that were added or deleted as a whole and hold more than ``MANY`` files.

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
    """Split into changes to show one by one and directories to show as one line.

    Directories that came or went whole always roll up, and so do repositories (``.git``); then, while there are more
    than ``lines`` rows, the directory at the top level that stands for the most rows.
    """
    groups: dict[bytes, list[Change]] = {top: [] for top in whole_directories(changes)}
    groups |= {git: [] for change in changes if (git := git_directory(change.path)) is not None}
    rows: list[Change] = []
    for change in listed(changes):
        top = next((above for above in (*ancestors(change.path), change.path) if above in groups), None)
        # a group inside a group never gets anything: the outer one comes first
        (rows if top is None else groups[top]).append(change)
    groups = {top: inside for top, inside in groups.items() if inside}
    while len(rows) + len(groups) > lines:
        heavy = _heaviest([*(change.path for change in rows), *groups])
        if heavy is None:
            break
        inside = [change for change in rows if is_below(change.path, heavy)]
        rows = [change for change in rows if not is_below(change.path, heavy)]
        for top in [top for top in groups if is_below(top, heavy)]:
            inside += groups.pop(top)
        groups[heavy] = inside
    return rows, [_roll(top, groups[top]) for top in sorted(groups, key=sort_key)]


def _heaviest(paths: Sequence[bytes]) -> bytes | None:
    counts: dict[bytes, int] = {}
    for path in paths:
        top = path.split(b"/", 1)[0]
        counts[top] = counts.get(top, 0) + (top != path)
    heavy = max(counts, key=lambda top: (counts[top], top), default=None)
    return heavy if heavy is not None and counts[heavy] else None


def _roll(top: bytes, below: Sequence[Change]) -> Roll:
    verbs = [change.verb for change in below]
    size = sum(change.staged.size for change in below if change.staged is not None)
    return Roll(
        top, verbs.count("added"), verbs.count("modified"), verbs.count("deleted"), verbs.count("renamed"), size
    )
