"""Renames, found by content: a deleted and an added file that hold the same bytes are one moved file.

An overlay keeps no trace of a rename (it is a copy and a whiteout), so it has to be found again. Only exact content
counts here; the bytes are read by the caller, and only of files whose size makes a match possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mudroom.core.tree.change import Change
from mudroom.core.tree.path import name


def pair_renames(changes: Iterable[Change], digest: Callable[[Change], bytes]) -> list[Change]:
    """The same changes with renames marked: the added one becomes ``renamed``, the deleted one gets ``moved_to``.

    ``digest`` gives a hash of the staged content of an added file, of the original content of a deleted one. Empty
    files are never paired. Among several equal candidates one with the same name wins, then the first by path.
    """
    result = list(changes)
    gone = _by_size(result, "deleted")
    come = _by_size(result, "added")
    for size in sorted(gone.keys() & come.keys()):
        by_content: dict[bytes, list[int]] = {}
        for index in gone[size]:
            by_content.setdefault(digest(result[index]), []).append(index)
        for index in come[size]:
            candidates = by_content.get(digest(result[index]))
            if candidates:
                _mark(result, _best(result, candidates, result[index]), index, candidates)
    return result


def _by_size(changes: list[Change], verb: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for index, change in enumerate(changes):
        entry = change.entry
        if change.verb == verb and entry.kind == "file" and entry.size and change.original_known:
            found.setdefault(entry.size, []).append(index)
    return found


def _best(changes: list[Change], candidates: list[int], new: Change) -> int:
    return next((i for i in candidates if name(changes[i].path) == name(new.path)), candidates[0])


def _mark(changes: list[Change], old: int, new: int, candidates: list[int]) -> None:
    candidates.remove(old)
    source, target = changes[old].path, changes[new].path
    changes[old] = changes[old]._replace(moved_to=target)
    changes[new] = changes[new]._replace(verb="renamed", source=source)
