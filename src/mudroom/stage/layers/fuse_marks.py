"""fuse-overlayfs marks in a layer: read while the layer is mounted, and converted to the kernel's afterwards.

fuse-overlayfs writes the files ``.wh..wh..opq`` and ``.wh..opq`` where the kernel writes ``user.overlay.opaque``,
``.wh.NAME`` for a whiteout where it may not create devices, and its own xattrs on the files that it copies. It hides
every file whose name begins with ``.wh.``, and refuses to create one (fuse-overlayfs: main.c, WHITEOUT_PREFIX).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.stage import disk
from mudroom.stage.beneath import directory, look, open_layer
from mudroom.stage.layers.layer import OPAQUE, LayerListing, listing, loosened, make_whiteout

_FUSE_XATTRS = ("user.fuseoverlayfs.", "trusted.overlay.")
_OPAQUE_MARKS = (b".wh..wh..opq", b".wh..opq")
_WHITEOUT_PREFIX = b".wh."


def is_mark(path: bytes) -> bool:
    """Return whether fuse-overlayfs takes a layer's file for a mark: a part of its path begins with ``.wh.``."""
    return path.startswith(_WHITEOUT_PREFIX) or b"/" + _WHITEOUT_PREFIX in path


def fuse_listing(opened: int, may_be_opaque: bool = True) -> LayerListing:
    """Return the listing of an open layer directory that fuse-overlayfs may be writing to."""
    entries, gone, opaque = listing(opened, may_be_opaque)
    marks = {name for name in entries if name.startswith(_WHITEOUT_PREFIX)}
    opaque |= may_be_opaque and not marks.isdisjoint(_OPAQUE_MARKS)
    kept = {name: entry for name, entry in entries.items() if name not in marks}
    hidden = {name[len(_WHITEOUT_PREFIX) :] for name in marks.difference(_OPAQUE_MARKS)}
    return LayerListing(kept, gone | (hidden - kept.keys()), opaque)


def convert_fuse_layer(layer: bytes) -> None:
    """Convert the marks in a layer that is no longer mounted. Idempotent."""
    with Descriptor(open_layer(layer)) as root, loosened(root) as enter:
        pending = [b""]
        while pending:
            pending += _convert_directory(root, pending.pop(), enter)


def _convert_directory(root: int, path: bytes, enter: Callable[[bytes, Entry], None]) -> list[bytes]:
    """Convert one directory. Return its subdirectories' paths, which can be entered from then on."""
    below = []
    with directory(root, path) as opened:
        names = set(map(os.fsencode, os.listdir(opened)))
        _convert_marks(opened, names)
        for name in names:
            if _convert_entry(opened, name):
                at, entry = path + b"/" + name if path else name, look(opened, name)
                assert entry is not None, "a layer that is not mounted does not change"
                enter(at, entry)
                below.append(at)
    return below


def _convert_marks(opened: int, names: set[bytes]) -> None:
    if _OPAQUE_MARKS[0] in names:
        os.setxattr(opened, OPAQUE, b"y")
        for mark in names & set(_OPAQUE_MARKS):
            disk.unlink(opened, mark)
            names.discard(mark)
    for name in [name for name in names if name.startswith(_WHITEOUT_PREFIX)]:
        disk.unlink(opened, name)
        names.discard(name)
        gone = name[len(_WHITEOUT_PREFIX) :]
        if gone not in names:
            make_whiteout(opened, gone)


def _convert_entry(opened: int, name: bytes) -> bool:
    """Remove fuse-overlayfs's own xattrs. Return whether the entry is a directory."""
    at = b"/proc/self/fd/%d/%s" % (opened, name)
    info = disk.stat_at(opened, name)
    if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
        ours = [xattr for xattr in os.listxattr(at, follow_symlinks=False) if xattr.startswith(_FUSE_XATTRS)]
        closed = ours and not info.st_mode & stat.S_IWUSR  # xattr(7): changing an attribute needs write permission
        if closed:
            os.chmod(at, stat.S_IMODE(info.st_mode) | stat.S_IWUSR)
        for xattr in ours:
            os.removexattr(at, xattr, follow_symlinks=False)
        if closed:
            os.chmod(at, stat.S_IMODE(info.st_mode))
    return stat.S_ISDIR(info.st_mode)
