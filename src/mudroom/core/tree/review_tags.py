"""Tags by which review rows are filtered, and whether a row has hunks, derived from the change alone. Pure; no file is
read."""

from __future__ import annotations

from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import NEW_REPOSITORY, git_directory

TEXT_LIMIT = 4 << 20
"""Bytes. A larger text has no hunks, and its lines are not even counted."""
LARGE, MANY_LINES = 1 << 20, 5_000
"""Bytes and changed lines above which a change has the tag ``large``."""


def tags_of(change: Change, *, ignored: bool = False) -> tuple[str, ...]:
    """Return a row's tags: its flags, and ``repository``, ``binary``, ``large``, ``ignored``."""
    size = max(entry.size for entry in (change.base, change.staged) if entry is not None)
    large = size > LARGE or change.lines_added + change.lines_removed > MANY_LINES
    repository = is_of_repository(change)
    optional = (("repository", repository), ("binary", change.binary), ("large", large), ("ignored", ignored))
    return (*change.flags, *(tag for tag, holds in optional if holds and tag not in change.flags))


def is_of_repository(change: Change) -> bool:
    """Return whether the change is in one of the project's repositories, which are applied only on request."""
    if b".git" not in change.path or git_directory(change.path) is None:
        return False
    return "protected" not in change.flags and NEW_REPOSITORY not in change.flags


def has_hunks(change: Change) -> bool:
    """Return whether the change has selectable hunks, as far as that is known without reading the file."""
    entries = [entry for entry in (change.base, change.staged) if entry is not None]
    return (
        change.staged is not None
        and not change.source
        and not change.binary
        and change.original_known
        and not is_of_repository(change)
        and all(entry.kind == "file" and entry.size <= TEXT_LIMIT for entry in entries)
    )
