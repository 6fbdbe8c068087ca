"""Undo when an apply brought a new repository: the whole repository is removed, or it stays as it is. Pure.

A command that only reads (``git status``) refreshes the index, so a repository in which only the index differs is
removed with it. If the user has worked in it, it stays whole: without its objects the user's commits would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.core.tree.path import is_below, name
from mudroom.typing import NamedTuple

STAYS = "is a repository in which there was work since; it stays"
_REFRESHED = frozenset((b"index",))


class MadeUndo(NamedTuple):
    tree: dict[bytes, Entry]
    """The entries to remove: as recorded, but refreshed indexes as they are now."""
    staying: frozenset[bytes]
    """The repositories that stay."""


def repositories_in(path: bytes, tree: Iterable[bytes]) -> list[bytes]:
    """Return the ``.git`` directories in a directory that was applied at ``path``, relative to it; b"" if ``path``
    itself is a ``.git``. ``tree``: the directory's contents as relative paths."""
    if name(path) == b".git":
        return [b""]
    tops = [below for below in tree if name(below) == b".git"]
    return [top for top in tops if not any(other != top and is_below(top, other) for other in tops)]


def undo_of_repositories(tops: Iterable[bytes], tree: Mapping[bytes, Entry], live: Mapping[bytes, Entry]) -> MadeUndo:
    """Compare repositories (``repositories_in``) as they were applied with ``live``, their state now."""
    refreshed = dict(tree)
    staying = set()
    for top in tops:
        start = top + b"/" if top else b""
        paths = {path for path in tree.keys() | live.keys() if path.startswith(start)}
        differing = {path[len(start) :] for path in paths if not same_stamp(tree.get(path), live.get(path))}
        if not differing <= _REFRESHED or not all(start + each in live for each in differing):
            staying.add(top)
        else:
            refreshed |= {start + each: live[start + each] for each in differing}
    return MadeUndo(refreshed, frozenset(staying))
