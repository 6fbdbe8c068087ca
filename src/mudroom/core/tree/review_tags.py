"""What rows of a review are filtered by, and which have hunks: told by a change alone. Pure; nothing is read."""

from __future__ import annotations

from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import git_directory

TEXT_LIMIT = 4 << 20
"""Bytes of a text that has hunks: of a larger one not even the lines are counted."""
LARGE, MANY_LINES = 1 << 20, 5_000
"""Bytes and changed lines above which a change is tagged ``large``."""


def tags_of(change: Change, *, ignored: bool = False) -> tuple[str, ...]:
    """What a row is filtered by: its flags, and ``repository``, ``binary``, ``large``, ``ignored``."""
    size = max(entry.size for entry in (change.base, change.staged) if entry is not None)
    large = size > LARGE or change.lines_added + change.lines_removed > MANY_LINES
    repository = is_of_repository(change)
    more = (("repository", repository), ("binary", change.binary), ("large", large), ("ignored", ignored))
    return (*change.flags, *(tag for tag, holds in more if holds and tag not in change.flags))


def is_of_repository(change: Change) -> bool:
    """Whether it lands only with all of the repository (``.git``) that it is in, if that is asked for."""
    return b".git" in change.path and git_directory(change.path) is not None and "protected" not in change.flags


def has_hunks(change: Change) -> bool:
    """Whether hunks can be chosen from it, as far as that can be told without reading it."""
    entries = [entry for entry in (change.base, change.staged) if entry is not None]
    return (
        change.staged is not None
        and not change.source
        and not change.binary
        and change.original_known
        and not is_of_repository(change)
        and all(entry.kind == "file" and entry.size <= TEXT_LIMIT for entry in entries)
    )
