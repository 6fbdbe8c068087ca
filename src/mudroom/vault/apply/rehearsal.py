"""A landing performed in a fork instead of the project, so that the result can be tried before it is real."""

from __future__ import annotations

from mudroom.core.merge.operations import Landing
from mudroom.core.tree.change import Change
from mudroom.stage.buffer.files import Tree
from mudroom.stage.layers.union import OneLayer
from mudroom.stage.source import Source

_CHUNK = 1 << 20


def rehearse(tree: Tree, landing: Landing, staged: Source, merged: bytes) -> None:
    """Make ``tree``, which shows the project as it is, what the landing would make of the project.

    ``merged``: the directory of what is not the fork's own content (``Op.merged``). FIFOs are left out. Raises OSError.
    """
    names = {op.path: op.merged for op in landing.ops if op.merged}
    modes = {op.path for op in landing.ops if op.kind == "chmod"}
    source = OneLayer(merged) if merged else None
    try:
        for change in landing.taken:
            if change.staged is None:
                _remove(tree, change.path)
            elif change.path in modes and change.base is not None:
                tree.chmod(change.path, change.staged.mode)
            elif change.path in names and source is not None:
                _file(tree, change, source, names[change.path].encode())
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
    """A directory goes at the end, if nothing is left in it: what the user has put there stays."""
    entry = tree.look(path)
    if entry is not None and entry.kind != "directory":
        tree.unlink(path)


def _put(tree: Tree, change: Change, staged: Source) -> None:
    entry, there = change.staged, tree.look(change.path)
    assert entry is not None
    if there is not None and (there.kind == "directory") != (entry.kind == "directory"):
        tree.remove(change.path)
        there = None
    if entry.kind == "file":
        _file(tree, change, staged, change.path)
    elif entry.kind == "directory":
        if there is None:
            tree.mkdir(change.path, entry.mode | 0o700)
    elif entry.kind == "symlink":
        if there is not None:
            tree.unlink(change.path)
        tree.symlink(change.path, entry.target)


def _file(tree: Tree, change: Change, source: Source, at: bytes) -> None:
    assert change.staged is not None
    with tree.create(change.path, change.staged.mode) as draft, open(source.open(at), "rb") as stream:
        while data := stream.read(_CHUNK):
            draft.write(data)
