"""The changes that the project's ``.gitignore`` files match."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import groupby

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ROOT, climb, parent
from mudroom.stage.exclude import ignored
from mudroom.stage.source import Source, read_all

_IGNORE_LIMIT = 1 << 20
"""Maximum bytes in a ``.gitignore``; a larger file is ignored."""


def read_ignore_file(project: Source, path: bytes) -> bytes | None:
    try:
        return read_all(project, path, _IGNORE_LIMIT)
    except OSError:
        return None


def ignored_paths(project: Source, changes: Iterable[Change], files: dict[bytes, Entry | None]) -> frozenset[bytes]:
    """Return the changed paths that the project's own ``.gitignore`` files match, directly or by a directory above.

    The fork's versions of those files are not used. ``files``: receives each file that was looked up.
    """

    absent: dict[bytes, bool] = {ROOT: False}

    def is_absent(directory: bytes) -> bool:
        """Whether the project lacks the directory. The first absent directory on the way is looked up again on each
        use."""
        for above in climb(directory, absent):
            absent[above] = absent[parent(above)] or project.look(above) is None
            if absent[above] and not absent[parent(above)]:
                files[above] = None
        return absent[directory]

    def look(path: bytes) -> Entry | None:
        if is_absent(parent(path)):
            return None  # a fork may have made thousands of directories
        files[path] = entry = project.look(path)
        return entry

    out = ignored(look, partial(read_ignore_file, project))
    within: dict[bytes, bool] = {ROOT: False}

    def is_within(directory: bytes) -> bool:
        for above in climb(directory, within):
            within[above] = within[parent(above)] or out(above, _DIRECTORY)
        return within[directory]

    matched: list[bytes] = []
    # most rows are in the same directory as the row before
    for place, some in groupby(changes, lambda change: parent(change.path)):
        inside = is_within(place)
        matched += [change.path for change in some if inside or out(change.path, change.entry)]
    return frozenset(matched)


_DIRECTORY = Entry("directory", 0o755, 0, b"", 0, 0, 1, 0, 0, 0, 0)
