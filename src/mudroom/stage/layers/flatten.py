"""Merge several layers into one equivalent layer. The old layers stay unchanged, for other forks on top of them.

Files are hard links: a sealed layer is never written to, so two layers may share an inode.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.stage import disk, xattr
from mudroom.stage.beneath import directory, open_layer, reach
from mudroom.stage.copy import copy_entry, copy_file, copy_open_file, link
from mudroom.stage.layers.closed_directory import entered
from mudroom.stage.layers.layer import OPAQUE, LayerListing, make_whiteout, open_staged, read_directory

_Place = tuple[bytes, tuple[int, ...], bool]
"""A directory: its path, the layers that contribute to it (topmost first), and whether the tree below them is
hidden."""


def flatten(layers: Sequence[bytes], target: bytes, *, copying: bool = False) -> None:
    """Merge layers, topmost first, into the empty directory ``target``. ``copying``: the layers are not sealed, but do
    not change meanwhile; files are copied, so that no inode is shared."""
    links: dict[tuple[int, int], bytes] | None = {} if copying else None
    roots = [open_layer(layer) for layer in layers]
    into = open_layer(target)
    try:
        modes: list[tuple[bytes, int]] = [(b"", os.fstat(roots[0]).st_mode & 0o7777)]
        pending: list[_Place] = [(b"", tuple(roots), False)]
        while pending:
            path, contributing, hidden = pending.pop()
            pending += _directory(path, contributing, hidden, into, modes, links)
        for path, mode in reversed(modes):  # deepest first: a mode may forbid passing through
            with reach(into, path or b".") as (at, rest):
                disk.set_mode(at, rest, mode)
    finally:
        for descriptor in (*roots, into):
            os.close(descriptor)


def _directory(
    path: bytes,
    contributing: tuple[int, ...],
    hidden: bool,
    into: int,
    modes: list[tuple[bytes, int]],
    links: dict[tuple[int, int], bytes] | None,
) -> list[_Place]:
    """Write one directory. Return its subdirectories."""
    levels: list[tuple[int, LayerListing]] = []
    for root in contributing:
        listing = read_directory(root, path)
        if listing is None:  # impossible in a sealed layer, which does not change
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        levels.append((root, listing))
        if listing.opaque:
            hidden = True
            break
    if hidden:
        _make_opaque(into, path)
    below: list[_Place] = []
    seen: set[bytes] = set()
    prefix = path + b"/" if path else b""
    for index, (root, listing) in enumerate(levels):
        gone = listing.gone - seen
        if gone and not hidden:
            with directory(into, path) as opened:
                for name in gone:
                    make_whiteout(opened, name)
        for name, entry in listing.entries.items():
            if name in seen:
                continue
            if entry.kind == "directory":
                with reach(into, prefix + name) as (at, rest):
                    disk.mkdir(at, rest, 0o700)
                with entered(root, prefix + name) as read, directory(into, prefix + name) as write:
                    xattr.give_lists(write, xattr.lists(read))
                modes.append((prefix + name, entry.mode))
                below.append((prefix + name, *_beneath(name, levels[index:])))
            elif links is None:
                _link(root, into, prefix + name, entry)
            else:
                _copy(root, into, prefix + name, entry, links)
        seen |= listing.gone | listing.entries.keys()
    return below


def _beneath(name: bytes, levels: Sequence[tuple[int, LayerListing]]) -> tuple[tuple[int, ...], bool]:
    """Return the layers that contribute to a directory, and whether an entry in them hides the rest."""
    contributing: list[int] = []
    for root, listing in levels:
        entry = listing.entries.get(name)
        if name in listing.gone or (entry is not None and entry.kind != "directory"):
            return tuple(contributing), True
        if entry is not None:
            contributing.append(root)
    return tuple(contributing), False


def _make_opaque(into: int, path: bytes) -> None:
    with directory(into, path) as opened:
        xattr.put(opened, OPAQUE, b"y")


def _link(root: int, into: int, path: bytes, entry: Entry) -> None:
    try:
        link(root, path, into, path)
    except OSError as error:
        if error.errno not in (errno.EMLINK, errno.EXDEV, errno.EPERM) or entry.kind != "file":
            raise
        copy_file(root, into, path, path, entry)


def _copy(root: int, into: int, path: bytes, entry: Entry, links: dict[tuple[int, int], bytes]) -> None:
    key = (entry.device, entry.inode)
    if entry.kind != "file" or key in links:
        copy_entry(root, into, path, entry, links)  # sockets have no content; they are left out, as in an apply
        return
    with Descriptor(open_staged(root, path)) as opened:
        copy_open_file(opened, into, path, entry)
    if entry.links > 1:
        links[key] = path
