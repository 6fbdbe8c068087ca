"""Dependencies between review rows where a directory has become a file, or a file a directory. Pure.

1. A directory that has become something else requires all changes below it: deletions, and renames that lead out. Those
   changes can be applied without it.
2. A path that is now a directory, and was something else, is applied together with all changes below it, in one rename.

ext/web/page/together.js implements the same rules, so that the user sees them while choosing.
``ext/web/api/landing.py`` checks requests against them; ``cli/change/patch.py`` and ``cli/change/apply.py`` check the
selected or named paths.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from mudroom.core.tree.change import Change
from mudroom.core.tree.path import ancestors, show_path
from mudroom.typing import Literal, NamedTuple

Needs = Mapping[bytes, frozenset[bytes]]
"""Maps a row's path to the paths of the rows that it requires."""


class DependentRow(NamedTuple):
    path: bytes
    source: bytes = b""
    becomes: Literal["", "directory", "other"] = ""


def row_of(change: Change) -> DependentRow:
    return DependentRow(change.path, change.source, _becomes(change))


def has_turned(change: Change) -> bool:
    """Return whether the path was a directory and is something else now, or the reverse."""
    base, staged = change.base, change.staged
    return base is not None and staged is not None and (base.kind == "directory") != (staged.kind == "directory")


def _becomes(change: Change) -> Literal["", "directory", "other"]:
    if not has_turned(change):
        return ""
    return "directory" if change.entry.kind == "directory" else "other"


def needs(rows: Iterable[DependentRow]) -> Needs:
    rows = tuple(rows)
    heads = {row.path: row.becomes for row in rows if row.becomes}
    required: dict[bytes, set[bytes]] = {}
    for row in rows if heads else ():
        for above in ancestors(row.path):
            if heads.get(above) == "directory":
                required.setdefault(row.path, set()).add(above)
                required.setdefault(above, set()).add(row.path)
        for above in {*ancestors(row.path), *(ancestors(row.source) if row.source else ())}:
            if heads.get(above) == "other" and above != row.path:
                required.setdefault(above, set()).add(row.path)
    return {path: frozenset(others) for path, others in required.items()}


def complete_selection(picked: Collection[bytes], needed: Needs, before: Collection[bytes] | None = None) -> set[bytes]:
    """Return the selection without unmet requirements. With ``before``, the previous selection: a row whose requirement
    was just deselected is deselected too, and a newly selected row adds its requirements. With ``before`` None, no rows
    are added: rows with unmet requirements are dropped."""
    selected, dropped = set(picked), set[bytes]()
    changed = True
    while changed:
        changed = False
        for path in selected & needed.keys():
            missing = needed[path] - selected
            if not missing:
                continue
            changed = True
            if before is None or not missing.isdisjoint(before) or not missing.isdisjoint(dropped):
                selected.remove(path)
                dropped.add(path)
            else:
                selected |= missing
    return selected


def unmet_requirements(picked: Collection[bytes], needed: Needs) -> Iterator[tuple[bytes, Collection[bytes]]]:
    """Yield each selected row that has unselected requirements, with those requirements, sorted by path."""
    for path in sorted(needed.keys() & set(picked)):
        missing = needed[path].difference(picked)
        if missing:
            yield path, missing


def requirement_text(path: bytes, missing: Collection[bytes]) -> str:
    others = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    return f"{show_path(path)} goes only together with {show_path(min(missing))}{others}"
