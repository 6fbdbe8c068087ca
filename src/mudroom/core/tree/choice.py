"""Which changes of a fork go along when only some are wanted.

Two ways of wanting are told apart. A path on a command line stands for all that is at and below it. A row of a review
stands for itself: the other rows below the same directory were looked at, too, and not chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mudroom.core.tree.change import Change
from mudroom.core.tree.path import ancestors


def at_or_below(changes: Sequence[Change], paths: Collection[bytes]) -> list[Change]:
    """What is at and below the paths, with the new directories that it lies in."""
    wanted = set(paths)
    found = {one.path for one in changes if one.path in wanted or not wanted.isdisjoint(ancestors(one.path))}
    return _with_directories(changes, found, _is_new)


def exactly(changes: Sequence[Change], paths: Collection[bytes]) -> list[Change]:
    """What is at the paths and nowhere else, and what cannot be had apart from it: the directories that come with what
    lies in them, what goes with a directory that becomes something else, the other end of a rename, and directories
    that are gone in the fork if all that was in them goes."""
    wanted = set(paths)
    wanted |= {one.source for one in changes if one.path in wanted and one.source}
    turned = {one.path for one in changes if one.path in wanted and _turns_from_directory(one)}
    if turned:
        wanted |= {one.path for one in changes if not turned.isdisjoint(ancestors(one.path))}
    holding = {above for one in changes for above in ancestors(one.path)}
    left = (one for one in changes if one.path not in wanted and not (_is_gone(one) and one.path in holding))
    stays = {above for one in left for above in ancestors(one.path)}
    emptied = {above for one in changes if one.path in wanted for above in ancestors(one.path)}
    wanted |= {one.path for one in changes if _is_gone(one) and one.path in emptied and one.path not in stays}
    return _with_directories(changes, wanted, _comes_as_directory)


def _with_directories(changes: Sequence[Change], wanted: set[bytes], comes: Callable[[Change], bool]) -> list[Change]:
    needed = {above for path in wanted for above in ancestors(path)}
    return [one for one in changes if one.path in wanted or (one.path in needed and comes(one))]


def _is_new(change: Change) -> bool:
    return change.base is None and change.entry.kind == "directory"


def _comes_as_directory(change: Change) -> bool:
    """A directory where there was none, or something else."""
    was = change.base.kind if change.base is not None else ""
    return change.staged is not None and change.staged.kind == "directory" != was


def _turns_from_directory(change: Change) -> bool:
    return (
        change.base is not None
        and change.base.kind == "directory"
        and (change.staged is not None and change.staged.kind != "directory")
    )


def _is_gone(change: Change) -> bool:
    """Whether it is a directory that the fork has removed: a review counts what was in it instead."""
    return change.staged is None and change.entry.kind == "directory"
