"""Decides which repositories and linked directories made by a fork an apply leaves out. Pure.

The flags were set at collection (``core/git/new_repository.py``). A new repository is applied whole or not at all.
Files in a linked directory are applied if the user names them or the directory, without its ``.git``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.flag import LINKED, MADE, NEW_REPOSITORY, PROTECTED, repository_of_each
from mudroom.core.tree.path import ancestors, name


def left_out(
    changes: Sequence[Change], named: Collection[bytes], is_repository: Callable[[bytes], bool]
) -> dict[bytes, bool]:
    """Return, for each change in a new repository or linked directory, whether it is left out. ``named``: paths given
    by the user. ``is_repository``: whether the project now has a repository in this directory; another repository's
    files are never added to it."""
    new = [change for change in changes if NEW_REPOSITORY in change.flags]
    linked = [change for change in changes if PROTECTED in change.flags and not LINKED.isdisjoint(change.flags)]
    return _repositories_left_out(new, named, is_repository) | _linked_left_out(linked, named)


def _repositories_left_out(
    new: Sequence[Change], named: Collection[bytes], is_repository: Callable[[bytes], bool]
) -> dict[bytes, bool]:
    tops = repository_of_each(new)
    staying = {top for top in {*tops.values()} if is_repository(top)}
    for change in new:
        top = tops[change.path]
        if PROTECTED in change.flags and change.entry.kind != "directory" and not {change.path, top} & {*named}:
            staying.add(top)
    return {path: top in staying for path, top in tops.items()}


def _linked_left_out(linked: Sequence[Change], named: Collection[bytes]) -> dict[bytes, bool]:
    if not linked:
        return {}
    links = {change.path for change in linked if name(change.path) == b".git"}
    inside = {change.path for change in linked}
    wanted = {path for path in named if path in inside or path + b"/.git" in links}
    leading = {directory for path in wanted & inside for directory in ancestors(path)}
    covered = wanted | leading | {path for path in inside - links if not wanted.isdisjoint(ancestors(path))}
    return {path: path not in covered for path in inside}


def remarks_on(withheld: Iterable[bytes], remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Return the remarks about made directories that contain a withheld path."""
    made = [remark for remark in remarks if MADE in remark.text]
    if not made:
        return ()
    holding = {above for path in withheld for above in (path, *ancestors(path))}
    return tuple(remark for remark in made if remark.path in holding)
