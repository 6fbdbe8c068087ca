"""Entries and changes, written in a few words."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry, Kind

ENTRY = Entry("file", 0o644, 1, b"", 1, 10, 1, 1000, 1000, 5, 5)


def file(size: int = 1, **fields: Any) -> Entry:
    return ENTRY._replace(size=size, **fields)


def directory(**fields: Any) -> Entry:
    return ENTRY._replace(**{"kind": "directory", "mode": 0o755, "size": 0, **fields})


def symlink(target: bytes = b"to", **fields: Any) -> Entry:
    return ENTRY._replace(kind="symlink", mode=0, size=0, target=target, **fields)


def added(path: bytes, staged: Entry = ENTRY, **fields: Any) -> Change:
    return Change(path, "added", None, staged, **fields)


def deleted(path: bytes, base: Entry = ENTRY, **fields: Any) -> Change:
    return Change(path, "deleted", base, None, **fields)


def modified(path: bytes, base: Entry = ENTRY, staged: Entry = ENTRY, **fields: Any) -> Change:
    return Change(path, "modified", base, staged, **{"flags": ("content",), **fields})


KINDS: tuple[Kind, ...] = ("file", "directory", "symlink", "fifo", "socket", "device")


def names() -> st.SearchStrategy[bytes]:
    """What a directory can hold: any bytes but NUL and the slash, and not the two that have a meaning of their own."""
    usual = st.sampled_from([b"a", b"b", b"a-b", b"a b", b"...", b"\xff", b"\n", b"\\", "\u202e\u00e9".encode()])
    return usual | st.binary(min_size=1, max_size=8).filter(
        lambda raw: not {0, 47} & set(raw) and raw not in (b".", b"..")
    )


def paths(depth: int = 4) -> st.SearchStrategy[bytes]:
    return st.lists(names(), min_size=1, max_size=depth).map(b"/".join)
