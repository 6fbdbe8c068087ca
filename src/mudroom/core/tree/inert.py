"""Whether a changed file is known to be inert: the opposite question to ``runs_later``, for what lands unasked.

All that ``data/inert.txt`` does not name asks. No name tells that other files import or open this one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from mudroom.core.text.table import read_table
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import ancestors, name


def is_inert(change: Change, endings_in: Callable[[bytes], frozenset[bytes]]) -> bool:
    """Return whether a change may land unasked by its name. ``endings_in`` returns the endings of the project's files
    directly in a directory."""
    if change.entry.kind == "directory":
        return True
    last = name(change.path)
    ending = ending_of(last)
    _subject, where = _row_of(last)
    if not where or change.entry.kind != "file" or b"/." in b"/" + change.path.removesuffix(last):
        return False
    if where == "anywhere" or (where == "changed" and change.base is not None and change.base.kind == "file"):
        return True
    return any(ending in endings_in(above) for above in ancestors(change.path))


def subject_of(path: bytes) -> str:
    """Return the table's row for a file by its name: ``documents``, ``source`` …; "" if it has none."""
    return _row_of(name(path))[0]


def ending_of(last: bytes) -> bytes:
    """Return the ending of a file's name in lower case, with its dot; b"" if it has none."""
    stem, dot, end = last.lower().rpartition(b".")
    return dot + end if stem else b""


def _row_of(last: bytes) -> tuple[str, str]:
    return _rows().get(b"*" + ending_of(last)) or _rows().get(last if last[:1] == b"." else last.upper()) or ("", "")


@cache
def _rows() -> dict[bytes, tuple[str, str]]:
    rows = (row.split(" | ") for row in read_table("inert"))
    return {name.encode(): (what, where) for what, where, names in rows for name in names.split()}
