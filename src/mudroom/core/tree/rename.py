"""Detection of exact renames: a deleted and an added file with the same bytes are one renamed file.

An overlay does not record a rename: it stores a copy and a whiteout. Only identical content counts here. The caller
reads the bytes, and only of files whose size makes a match possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mudroom.core.tree.change import Change
from mudroom.core.tree.path import name


def pair_renames(changes: Iterable[Change], digest: Callable[[Change], bytes]) -> list[Change]:
    """Return the same changes with renames marked: the added change becomes ``renamed``, the deleted one gets
    ``moved_to``.

    ``digest`` returns a hash of the staged content of an added file, or of the original content of a deleted file.
    Empty files are never paired. Among several equal candidates, a file with the same name is preferred, then the first
    by path.
    """
    result = list(changes)
    deleted = _by_size(result, "deleted")
    added = _by_size(result, "added")
    for size in sorted(deleted.keys() & added.keys()):
        by_content: dict[bytes, list[int]] = {}
        for index in deleted[size]:
            by_content.setdefault(digest(result[index]), []).append(index)
        for index in added[size]:
            candidates = by_content.get(digest(result[index]))
            if candidates:
                _mark(result, _best(result, candidates, result[index]), index, candidates)
    return result


def _by_size(changes: list[Change], verb: str) -> dict[int, list[int]]:
    indexes: dict[int, list[int]] = {}
    for index, change in enumerate(changes):
        entry = change.entry
        if change.verb == verb and entry.kind == "file" and entry.size and change.original_known:
            indexes.setdefault(entry.size, []).append(index)
    return indexes


def _best(changes: list[Change], candidates: list[int], new: Change) -> int:
    return next((index for index in candidates if name(changes[index].path) == name(new.path)), candidates[0])


def _mark(changes: list[Change], old: int, new: int, candidates: list[int]) -> None:
    candidates.remove(old)
    source, target = changes[old].path, changes[new].path
    changes[old] = changes[old]._replace(moved_to=target)
    changes[new] = changes[new]._replace(verb="renamed", source=source)
