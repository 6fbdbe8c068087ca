"""Comparison between a tree on disk and a manifest, by content."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from mudroom.core.tree.entry import Entry
from mudroom.ext.fleet.base.manifest import DIRECTORY, FILE, SYMLINK, Row, walk
from mudroom.ext.transfer.vault.rebase import digest
from mudroom.stage.beneath import LastDirectory, entries, open_root

_KINDS = {FILE: "file", DIRECTORY: "directory", SYMLINK: "symlink"}


def differences(tree: bytes, root: bytes, nodes: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Yield the paths at which a tree is not what its manifest says. Raise KeyError if a node is missing."""
    opened = open_root(tree)
    try:
        with LastDirectory(opened) as directory:
            for path, rows in walk(root, nodes.__getitem__):
                prefix = path + b"/" if path else b""
                try:
                    found = entries(directory.enter(path))
                except OSError:
                    yield path
                    continue
                yield from (prefix + name for name in found.keys() - {row.name for row in rows})
                for row in rows:
                    entry = found.get(row.name)
                    if entry is None or not _is_as_said(directory, prefix + row.name, row, entry):
                        yield prefix + row.name
    finally:
        os.close(opened)


def _is_as_said(directory: LastDirectory, path: bytes, row: Row, entry: Entry) -> bool:
    if entry.kind != _KINDS[row.kind] or entry.mode != row.mode:
        return False
    if row.kind != FILE:
        return row.kind == DIRECTORY or entry.target == row.content
    if (entry.size, entry.mtime) != (row.size, row.mtime_ns):
        return False
    try:
        descriptor = directory.open_file(path)
    except OSError:
        return False
    try:
        return digest(descriptor) == row.content
    finally:
        os.close(descriptor)
