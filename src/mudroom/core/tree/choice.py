"""Selection among a fork's changes.

A path on a command line selects everything at and below that path. A review row selects only that path: the user saw
the other rows below the same directory and did not choose them. A repository that the fork made is selected as a whole
if any part is selected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import repository_of_each
from mudroom.core.tree.path import ancestors


def select_below(changes: Sequence[Change], paths: Collection[bytes]) -> list[Change]:
    """Return the changes at and below ``paths``, and the new directories that contain them."""
    selected = set(paths)
    paths_below = {
        change.path for change in changes if change.path in selected or not selected.isdisjoint(ancestors(change.path))
    }
    return _with_directories(changes, paths_below, _is_new)


def select_exactly(changes: Sequence[Change], paths: Collection[bytes]) -> list[Change]:
    """Return the changes at exactly ``paths``, and the changes that cannot be separated from them: new directories
    above them, everything below a directory that becomes something else, a rename's old path, and deleted directories
    that become empty."""
    selected = set(paths)
    selected |= {change.source for change in changes if change.path in selected and change.source}
    replaced = {change.path for change in changes if change.path in selected and _replaces_directory(change)}
    if replaced:
        selected |= {change.path for change in changes if not replaced.isdisjoint(ancestors(change.path))}
    holding = {above for change in changes for above in ancestors(change.path)}
    remaining = (
        change
        for change in changes
        if change.path not in selected and not (_is_gone(change) and change.path in holding)
    )
    kept = {above for change in remaining for above in ancestors(change.path)}
    emptied = {above for change in changes if change.path in selected for above in ancestors(change.path)}
    selected |= {
        change.path for change in changes if _is_gone(change) and change.path in emptied and change.path not in kept
    }
    return _with_directories(changes, selected, _comes_as_directory)


def _with_directories(
    changes: Sequence[Change], selected: set[bytes], is_created: Callable[[Change], bool]
) -> list[Change]:
    selected |= _rest_of_repositories(changes, selected)
    needed = {above for path in selected for above in ancestors(path)}
    return [change for change in changes if change.path in selected or (change.path in needed and is_created(change))]


def _rest_of_repositories(changes: Sequence[Change], selected: set[bytes]) -> set[bytes]:
    repositories = repository_of_each(changes)
    chosen = {top for path, top in repositories.items() if path in selected}
    return {path for path, top in repositories.items() if top in chosen}


def _is_new(change: Change) -> bool:
    return change.base is None and change.entry.kind == "directory"


def _comes_as_directory(change: Change) -> bool:
    """Return whether a directory appears where the base has no entry, or an entry that is not a directory."""
    base_kind = change.base.kind if change.base is not None else ""
    return change.staged is not None and change.staged.kind == "directory" != base_kind


def _replaces_directory(change: Change) -> bool:
    return (
        change.base is not None
        and change.base.kind == "directory"
        and (change.staged is not None and change.staged.kind != "directory")
    )


def _is_gone(change: Change) -> bool:
    """Return whether the change deletes a directory. A review counts the deleted contents instead of the directory."""
    return change.staged is None and change.entry.kind == "directory"
