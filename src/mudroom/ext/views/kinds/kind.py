"""Which kind of parts a file has, by its name and first bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.tree.change import Change
from mudroom.core.tree.path import name, show_path
from mudroom.ext.order.core.package_list import is_lock
from mudroom.typing import NamedTuple


class FileKind(NamedTuple):
    parts: str
    """Plural noun."""
    is_first: bool
    """Whether the parts are shown first, and not the lines."""
    suffixes: tuple[bytes, ...] = ()
    magic: tuple[tuple[int, bytes], ...] = ()
    """Offset and bytes; the first one is enough for a binary file whatever its name."""
    most: int = 4 << 20
    """Bytes of a side that is read."""


KINDS: Mapping[str, FileKind] = {
    "packages": FileKind("packages", True, most=8 << 20),
    "notebook": FileKind("cells", True, (b".ipynb",), most=16 << 20),
    "database": FileKind(
        "tables", True, (b".sqlite", b".sqlite3", b".db3"), ((0, b"SQLite format 3\0"),), most=32 << 20
    ),
    "archive": FileKind(
        "members",
        True,
        (b".zip", b".whl", b".jar", b".war", b".tar", b".tgz", b".tar.gz", b".tar.xz", b".tar.bz2", b".crate"),
        ((0, b"PK\x03\x04"), (0, b"PK\x05\x06"), (257, b"ustar")),
        32 << 20,
    ),
    "json": FileKind("keys", False, (b".json", b".webmanifest", b".geojson"), most=2 << 20),
    "yaml": FileKind("keys", False, (b".yaml", b".yml"), most=1 << 19),
    "toml": FileKind("keys", False, (b".toml",), most=1 << 20),
}
"""The modules are in ``worker.py``."""


def kind_of(path: bytes, *heads: bytes) -> str:
    """Return a key of ``KINDS``, or an empty string. ``heads``: the first bytes of the sides that exist, 262 or more if
    the file is that long; none: the name alone decides."""
    last = name(path).lower()
    if is_lock(name(path)):
        return "packages"
    for kind, row in KINDS.items():
        if last.endswith(row.suffixes) if row.suffixes else False:
            return kind
        if any(head[at:].startswith(magic) for head in heads for at, magic in row.magic):
            return kind
    return ""


def hint(fork: str, changes: Sequence[Change]) -> str:
    """Return words about the changed files whose parts say more than their lines; empty if there is none."""
    rows = [(change, kind_of(change.path)) for change in changes if not change.moved_to]
    told = [f"{show_path(change.path)} ({KINDS[kind].parts})" for change, kind in rows if kind and KINDS[kind].is_first]
    more = f" and {len(told) - _MOST_NAMED:,} more" if len(told) > _MOST_NAMED else ""
    return f"by its parts: {', '.join(told[:_MOST_NAMED])}{more}: mudroom diff {fork} --view" if told else ""


_MOST_NAMED = 3
