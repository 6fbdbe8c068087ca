"""Rows of a review that do not come without others: where a directory has become something else, or was that. Pure.

1. A directory that has become something else goes with all that was in it: deletions, and what has moved out of it.
   What was in it can go alone.
2. What is a directory now, and was something else, comes with all that is in it: it lands by one rename.

web/page/together.js has the same rules: whoever chooses sees them. ``web/api/choice.py`` holds a request to them, and
``cli/change/patch.py`` and ``cli/change/apply.py`` what was chosen or named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from mudroom.core.tree.change import Change
from mudroom.core.tree.path import ancestors, show_path

Needs = Mapping[bytes, frozenset[bytes]]
"""By the path of a row: the rows without which it does not come."""


class DependentRow(NamedTuple):
    path: bytes
    source: bytes = b""
    becomes: Literal["", "directory", "other"] = ""


def row_of(change: Change) -> DependentRow:
    return DependentRow(change.path, change.source, _becomes(change))


def has_turned(change: Change) -> bool:
    """Whether it was a directory, or is one, and not both."""
    base, staged = change.base, change.staged
    return base is not None and staged is not None and (base.kind == "directory") != (staged.kind == "directory")


def _becomes(change: Change) -> Literal["", "directory", "other"]:
    if not has_turned(change):
        return ""
    return "directory" if change.entry.kind == "directory" else "other"


def needs(rows: Iterable[DependentRow]) -> Needs:
    rows = tuple(rows)
    heads = {row.path: row.becomes for row in rows if row.becomes}
    found: dict[bytes, set[bytes]] = {}
    for row in rows if heads else ():
        for above in ancestors(row.path):
            if heads.get(above) == "directory":
                found.setdefault(row.path, set()).add(above)
                found.setdefault(above, set()).add(row.path)
        for above in {*ancestors(row.path), *(ancestors(row.source) if row.source else ())}:
            if heads.get(above) == "other" and above != row.path:
                found.setdefault(above, set()).add(row.path)
    return {path: frozenset(others) for path, others in found.items()}


def together(picked: Collection[bytes], needed: Needs, before: Collection[bytes] | None = None) -> set[bytes]:
    """A choice that can be had as it is. ``before``: what was chosen: what is not any more has been let go, and takes
    with it what needs it, and what is new brings what it needs. None: nothing is brought."""
    found, gone = set(picked), set[bytes]()
    changed = True
    while changed:
        changed = False
        for path in found & needed.keys():
            missing = needed[path] - found
            if not missing:
                continue
            changed = True
            if before is None or not missing.isdisjoint(before) or not missing.isdisjoint(gone):
                found.remove(path)
                gone.add(path)
            else:
                found |= missing
    return found


def lacking(picked: Collection[bytes], needed: Needs) -> Iterator[tuple[bytes, Collection[bytes]]]:
    """What is chosen without what it needs, and what that is."""
    for path in sorted(needed.keys() & set(picked)):
        missing = needed[path].difference(picked)
        if missing:
            yield path, missing


def lacks(path: bytes, missing: Collection[bytes]) -> str:
    others = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    return f"{show_path(path)} goes only together with {show_path(min(missing))}{others}"
