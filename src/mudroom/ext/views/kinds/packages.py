"""A lock file as packages: added, removed, raised, lowered, or taken from elsewhere."""

from __future__ import annotations

import json as _json  # noqa: F401  (for package_list, which imports them when it reads)
import tomllib as _toml  # noqa: F401
from collections import Counter

from mudroom.core.text.regex import regex
from mudroom.ext.order.core.package_list import (
    AlikeNames,
    Package,
    PackageChanges,
    Packages,
    compare_packages,
    packages_of,
    popular_packages,
)
from mudroom.ext.views.kinds.row import FileView, FileViewRow, NoView, cut, kind_of_row, listed

_POPULAR = popular_packages()
_WORDS = "raised", "lowered", "changed", "added", "removed"


def view(path: bytes, before: bytes | None, after: bytes | None) -> FileView:
    old, new = _read(path, before, "old"), _read(path, after, "new")
    changes = compare_packages(old, new)
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    alike = AlikeNames(_POPULAR.union(old))
    told = [_row(name, old, new, changes, alike) for name in names]
    counts = Counter(word for word, _row in told)
    rows, notes = [row for _word, row in told], list[str]()
    summary = listed({word: counts[word] for word in _WORDS}) or "the same packages"
    flagged = sum(row.flagged for row in rows)
    return FileView(
        "packages", f"{summary}; {flagged:,} to look at" if flagged else summary, cut(rows, notes, "package"), notes
    )


def _read(path: bytes, text: bytes | None, side: str) -> Packages:
    packages = packages_of(path, text or b"")
    if packages is None:
        raise NoView(f"the {side} text is not in the format of this lock file")
    return packages


def _row(
    name: str, old: Packages, new: Packages, changes: PackageChanges, alike: AlikeNames
) -> tuple[str, FileViewRow]:
    """Return what happened in a word, and the row."""
    before, after = old.get(name, frozenset[Package]()), new.get(name, frozenset[Package]())
    old_versions, new_versions = _versions(before), _versions(after)
    flags: list[str] = []
    if not before and old:
        like = alike.of(name) if name not in _POPULAR else ""
        flags.append(f"a new name, and like {like}" if like else "a new name")
    if not before or name in changes.moved:
        flags += [f"from {source}" for source in sorted({row.source for row in after} - {row.source for row in before})]
    flags = [flag for flag in flags if flag != "from "] + ["back to its registry"] * ("from " in flags and bool(before))
    if name in changes.altered:
        flags.append("other files under the same version")
    kind = kind_of_row(before or None, after or None)
    word = _direction(old_versions, new_versions) if kind == "changed" else kind
    note = "; ".join([*([word] if kind == "changed" else []), *flags])
    return word, FileViewRow(kind, name, ", ".join(old_versions), ", ".join(new_versions), note, bool(flags))


def _versions(rows: frozenset[Package]) -> list[str]:
    return sorted({row.version for row in rows if row.version}, key=_rank)


def _direction(old: list[str], new: list[str]) -> str:
    gone, come = set(old) - set(new), set(new) - set(old)
    if not gone or not come:
        return "changed"
    before, after = (max(map(_rank, side)) for side in (gone, come))
    return "raised" if after > before else "lowered" if after < before else "changed"


_PART = regex(r"\d+|[a-z]+")
_END = (1, 0, "")


def _rank(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key by which versions are ordered: numbers by value, ``1.0rc1`` before ``1.0``. A guess that serves the
    schemes of all package managers, not one of them exactly."""
    words = _PART.findall(version.lower().partition("+")[0])[:20]
    parts = [(2, int(word[:18]), "") if word.isdecimal() else (2 if word == "post" else 0, -1, word) for word in words]
    return (*parts, _END)
