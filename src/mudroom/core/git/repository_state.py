"""Files in a git directory: which hold the repository's state, and which are caches. Pure.

A command that only looks (``git status``) refreshes the index, and ``git gc`` rewrites objects and refs without
changing a value. A fork's changes do not include such differences. The names are from gitrepository-layout(5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mudroom.core.git.index import is_same_staging
from mudroom.core.tree.change import Change

_CACHES = frozenset((b"objects", b"logs", b"fsmonitor--daemon", b"rr-cache", b"lost-found"))
"""Directories. Contents that no ref reaches are dangling, and logs only tell how refs moved."""
_CACHE_FILES = frozenset(
    b"ORIG_HEAD FETCH_HEAD COMMIT_EDITMSG MERGE_RR AUTO_MERGE gc.log gc.pid TAG_EDITMSG NOTES_EDITMSG".split()
)
_NESTED = (b"modules", b"worktrees")
_FOR_DUMB_CLIENTS = b"info/refs"
"""Written by git-update-server-info(1), for clients that read files only."""
_ALTERNATES = (b"objects/info/alternates", b"objects/info/http-alternates")

Read = Callable[[bytes], bytes | None]
"""Return a file's content in the fork or in its base; None if there is none or it is unknown."""


def parse_packed_refs(data: bytes) -> dict[bytes, bytes]:
    """Return the refs in a packed-refs file by full name: git-pack-refs(1). Other lines are left out."""
    rows = (line.split(b" ", 1) for line in data.split(b"\n") if line[:1] not in (b"#", b"^", b""))
    return {row[1]: row[0] for row in rows if len(row) == 2}


def is_ref_name(name: bytes) -> bool:
    """Return whether a ref may have this full name according to git-check-ref-format(1), and can be a file.

    dulwich has such a check, but importing it is too slow for each collection.
    """
    parts = name.split(b"/")
    is_word = all(0 < len(part) <= 250 and part[:1] != b"." and not part.endswith(b".lock") for part in parts)
    is_clean = all(byte > 32 and byte != 127 and byte not in b"~^:?*[\\" for byte in name)
    is_whole = not name.endswith(b".") and b".." not in name and b"@{" not in name and len(name) <= 2000
    return parts[0] == b"refs" and len(parts) > 1 and is_word and is_clean and is_whole


def is_unchanged(unit: bytes, changes: Iterable[Change], base: Read, staged: Read) -> bool:
    """Return whether the repository ``unit`` (the path of its ``.git``) is as before except for caches.

    ``changes``: those below the unit. ``base``, ``staged``: read a path in the project as it was, and in the fork.
    """
    refs: dict[bytes, set[bytes]] = {}
    for change in changes:
        directory, within = _split(unit, change.path)
        if not within or _is_cache(within, change):
            continue
        if within == b"index":
            if not _is_same_index(change, base, staged):
                return False
        elif within == b"packed-refs" or within == b"HEAD" or within.startswith(b"refs/"):
            refs.setdefault(directory, set()).add(within)
        else:
            return False
    return all(_are_same_refs(directory, names, base, staged) for directory, names in refs.items())


def _split(unit: bytes, path: bytes) -> tuple[bytes, bytes]:
    """Return a path's git directory, and the path inside it. A submodule or linked work tree has a git directory of its
    own. Its name may hold slashes, so it ends before the first name that belongs to a git directory."""
    within = path[len(unit) + 1 :]
    parts = within.split(b"/")
    if parts[0] not in _NESTED:
        return unit, within
    for index in range(2, len(parts)):
        if parts[index] in _NAMES:
            return b"/".join((unit, *parts[:index])), b"/".join(parts[index:])
    return unit, b""  # a directory on the way


_NAMES = _CACHES | _CACHE_FILES | {b"HEAD", b"refs", b"packed-refs", b"index", b"config", b"hooks", b"info", b"gitdir"}


def _is_cache(within: bytes, change: Change) -> bool:
    if within in _ALTERNATES:
        return False
    first = within.partition(b"/")[0]
    if (
        first in _CACHES
        or within in _CACHE_FILES
        or within == _FOR_DUMB_CLIENTS
        or within.endswith(b".lock")
        or first.startswith(b"sharedindex.")
    ):
        return True
    return _kinds(change) == {"directory"}


def _kinds(change: Change) -> set[str]:
    return {entry.kind for entry in (change.base, change.staged) if entry is not None}


def _is_same_index(change: Change, base: Read, staged: Read) -> bool:
    old, new = base(change.path), staged(change.path) if change.staged is not None else None
    if old is None or new is None:
        return False
    return any(is_same_staging(old, new, id_length) for id_length in (20, 32))


def _are_same_refs(directory: bytes, changed: set[bytes], base: Read, staged: Read) -> bool:
    sides = [_refs_of(directory, changed, read) for read in (base, staged)]
    return sides[0] == sides[1]


def _refs_of(directory: bytes, changed: set[bytes], read: Read) -> Mapping[bytes, bytes]:
    """Return the changed refs' values; those of all packed refs if the packed-refs file changed."""
    packed = parse_packed_refs(read(directory + b"/packed-refs") or b"")
    names = changed - {b"packed-refs"}
    values = {name: packed.get(name, b"") for name in names}
    if b"packed-refs" in changed:
        values |= packed
    for name in values:
        loose = read(directory + b"/" + name)
        if loose is not None:
            values[name] = loose.strip()
    return {name: value for name, value in values.items() if value}
