"""The base for a fork with a private repository: the project, with a directory in place of its ``.git`` file.

The entry ``.git`` itself is the project's, so that a fork that replaces it is compared with the true entry. Paths below
it come from the private layer, which never changes.
"""

from __future__ import annotations

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import git_directory
from mudroom.stage.source import Source


class PrivateBase:
    """Two sources as one. Owner: the caller, who closes both sources."""

    def __init__(self, private: Source, project: Source) -> None:
        self._private, self._project = private, project

    def is_top(self, path: bytes) -> bool:
        """Return whether ``path`` is a ``.git`` that is a directory only in forks."""
        return git_directory(path) == path and self._private.look(path) is not None

    def top_of(self, path: bytes) -> bytes | None:
        """Return the ``.git`` path of the private repository that contains ``path``, or None."""
        top = git_directory(path)
        return top if top is not None and top != path and self._private.look(top) is not None else None

    def look(self, path: bytes) -> Entry | None:
        return self._private.look(path) if self.top_of(path) else self._project.look(path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        is_private = self.is_top(path) or self.top_of(path)
        return self._private.names(path) if is_private else self._project.names(path)

    def open(self, path: bytes) -> int:
        return self._private.open(path) if self.top_of(path) else self._project.open(path)
