"""Perform a landing in a fork instead of the project, to test its result."""

from __future__ import annotations

from collections.abc import Collection

from mudroom.core.merge.operations import Landing
from mudroom.core.tree.change import Change
from mudroom.stage.buffer.files import Tree
from mudroom.stage.layers.union import OneLayer
from mudroom.stage.source import Source

_CHUNK = 1 << 20


def rehearse(
    tree: Tree, landing: Landing, staged: Source, merged: bytes, masked: Collection[bytes] = frozenset()
) -> None:
    """Apply the landing to ``tree``, which shows the present project. Raise OSError.

    ``masked``: secrets that are empty there, and stay so. ``merged``: directory with content that is not the fork's own
    (``Op.merged``). FIFOs are left out.
    """
    names = {op.path: op.merged for op in landing.ops if op.merged}
    modes = {op.path for op in landing.ops if op.kind == "chmod"}
    source = OneLayer(merged) if merged else None
    try:
        for change in landing.taken:
            if change.path in masked:
                continue
            if change.staged is None:
                _remove(tree, change.path)
            elif change.path in modes and change.base is not None:
                tree.chmod(change.path, change.staged.mode)
            elif change.path in names and source is not None:
                _write_file(tree, change, source, names[change.path].encode())
            else:
                _put(tree, change, staged)
    finally:
        if source is not None:
            source.close()
    gone = [change.path for change in landing.taken if change.staged is None and change.entry.kind == "directory"]
    for path in reversed(gone):
        if tree.look(path) is not None and not tree.names(path):
            tree.rmdir(path)


def _remove(tree: Tree, path: bytes) -> None:
    """Remove a file. Directories are removed at the end if they are empty: files that the user has added stay."""
    entry = tree.look(path)
    if entry is not None and entry.kind != "directory":
        tree.unlink(path)


def _put(tree: Tree, change: Change, staged: Source) -> None:
    entry, current = change.staged, tree.look(change.path)
    assert entry is not None
    if current is not None and (current.kind == "directory") != (entry.kind == "directory"):
        tree.remove(change.path)
        current = None
    if entry.kind == "file":
        _write_file(tree, change, staged, change.path)
    elif entry.kind == "directory":
        if current is None:
            tree.mkdir(change.path, entry.mode | 0o700)
    elif entry.kind == "symlink":
        if current is not None:
            tree.unlink(change.path)
        tree.symlink(change.path, entry.target)


def _write_file(tree: Tree, change: Change, source: Source, at: bytes) -> None:
    assert change.staged is not None
    with tree.create(change.path, change.staged.mode) as draft, open(source.open(at), "rb") as stream:
        while data := stream.read(_CHUNK):
            draft.write(data)
