"""Detection of exact renames: a deleted and an added file with the same bytes are one renamed file.

An overlay does not record a rename: it stores a copy and a whiteout. Only identical content counts here. The caller
reads the bytes, and only from files whose size makes a match possible.

A rename's two ends are shown as one change, so by default both are applied or neither. A path that an apply leaves out
(protected, or in a repository) is therefore never paired with a path that it applies. Otherwise ``mv file .git/x``
would remove a file that no preview names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import NEW_REPOSITORY, PROTECTED, git_directory
from mudroom.core.tree.path import name


def pair_renames(changes: Iterable[Change], digest: Callable[[Change], bytes]) -> list[Change]:
    """Return the same changes with renames marked: the added change becomes ``renamed``, the deleted one gets
    ``moved_to``. ``changes`` have all flags that ``stage/originals/repository_flags.py`` sets.

    ``digest`` returns a hash of an added file's staged content, or of a deleted file's original content. Empty files
    are never paired. Among several equal candidates, a file with the same name is preferred, then the first by path.
    """
    result = list(changes)
    deleted = _by_size(result, "deleted")
    added = _by_size(result, "added")
    for key in sorted(deleted.keys() & added.keys()):
        by_content: dict[bytes, list[int]] = {}
        for index in deleted[key]:
            by_content.setdefault(digest(result[index]), []).append(index)
        for index in added[key]:
            candidates = by_content.get(digest(result[index]))
            if candidates:
                _mark(result, _best(result, candidates, result[index]), index, candidates)
    return result


def _by_size(changes: list[Change], verb: str) -> dict[tuple[int, bytes], list[int]]:
    """Return the indexes of files that may be a rename's end, by size and by the condition for applying them."""
    indexes: dict[tuple[int, bytes], list[int]] = {}
    for index, change in enumerate(changes):
        entry = change.entry
        if change.verb == verb and entry.kind == "file" and entry.size and change.original_known:
            applied_with = _applied_with(change)
            if applied_with is not None:
                indexes.setdefault((entry.size, applied_with), []).append(index)
    return indexes


def _applied_with(change: Change) -> bytes | None:
    """Return the condition for applying the change: b"" for an ordinary file, the repository for a file in one; None
    for a file that is applied only if it is named."""
    if PROTECTED in change.flags:
        return None
    if NEW_REPOSITORY in change.flags:
        return NEW_REPOSITORY.encode()
    return git_directory(change.path) or b""


def _best(changes: list[Change], candidates: list[int], new: Change) -> int:
    return next((index for index in candidates if name(changes[index].path) == name(new.path)), candidates[0])


def _mark(changes: list[Change], old: int, new: int, candidates: list[int]) -> None:
    candidates.remove(old)
    source, target = changes[old].path, changes[new].path
    changes[old] = changes[old]._replace(moved_to=target)
    changes[new] = changes[new]._replace(verb="renamed", source=source)
