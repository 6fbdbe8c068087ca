"""Recognise the emptied form of a masked file in git trees and indexes. Pure.

Commands see a masked file empty. A commit, stash or index that records it so would replace the real file. Every import
of a fork's objects uses this check, whatever the fork's own index says.
"""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.git.index import TreeItem

EMPTY_BLOBS = {
    20: bytes.fromhex("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
    32: bytes.fromhex("473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"),
}
"""The empty blob's id, by id length in bytes: SHA-1 and SHA-256."""
_REGULAR = 0o100000
_KIND = 0o170000


class Emptied:
    """A repository's masked files. Immutable.

    ``paths``: files that are masked now, or were masked for an older command in the fork. A file is recognised by its
    name alone (the last path component), because a fork may have moved it.
    """

    def __init__(self, paths: Iterable[bytes]) -> None:
        self._names = frozenset(path.rpartition(b"/")[2] for path in paths)

    def __bool__(self) -> bool:
        """Return whether there are masked files; otherwise no tree need be read."""
        return bool(self._names)

    def may_hold(self, path: bytes) -> bool:
        """Return whether a file at ``path`` can be masked: a masked file has the same name."""
        return path.rpartition(b"/")[2] in self._names

    def is_emptied(self, path: bytes, item: TreeItem | None, bases: Iterable[TreeItem | None] = ()) -> bool:
        """Return whether ``item``, a tree or index entry at ``path``, is the emptied form of a masked file.

        ``bases``: entries at the same path in the trees that this one replaces (each parent of a commit, or the tree
        that
        the fork began with), or None. A file that is empty in one of them was not emptied by the mask.
        """
        if item is None or not _is_empty(item) or not self.may_hold(path):
            return False
        return not any(base is not None and _is_empty(base) for base in bases)


def _is_empty(item: TreeItem) -> bool:
    return item.id == EMPTY_BLOBS.get(len(item.id)) and item.mode & _KIND == _REGULAR
