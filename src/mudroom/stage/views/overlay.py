"""The overlay view: a kernel overlay with the fork's upper layer over its sealed layers and the base."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence

from mudroom.core.confinement.spec import Overlay
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import directory, look, open_layer, reach
from mudroom.stage.layers.closed_directory import is_same_root
from mudroom.stage.layers.layer import LayerListing, listing, loosened
from mudroom.stage.source import Source
from mudroom.stage.view import NO_ATTRIBUTES, RawDifference, is_too_deep
from mudroom.stage.views.work_directory import new_work_directory, open_work_directories, remove_old_work_directories

_FEW = 64
"""Up to this many staged names in a directory are looked up below one by one; the directory below may hold a
million."""


class OverlayView:
    """Owner: the caller, in one thread."""

    kind = "overlay"

    def __init__(self, base: bytes, layers: Sequence[bytes], upper: bytes, works: bytes) -> None:
        """``layers``: the sealed layers' directories, topmost first. ``works``: the work directories' parent
        directory."""
        self._base, self._layers, self._upper, self._works = base, tuple(layers), upper, works
        self._current = b""
        self._is_first = False
        """Whether the fork was never mounted before."""
        self.is_live = False
        """Whether the view is mounted now. Its layers must not be tidied then."""
        self.has_tidied = False
        """Whether ``differences`` has changed the upper layer."""

    @property
    def staged(self) -> tuple[bytes, ...]:
        return (self._upper, *self._layers)

    def prepare(self, work: bytes = b"") -> None:
        """Create the upper and work directories. The upper gets the base's mode, because the view's root shows it.
        ``work``: the work directory's name if the mount already exists; then no directory is created."""
        if work:
            self._current = work
            return
        is_new = not os.path.lexists(self._upper)
        with Descriptor(safe_open.make_directory(self._upper)) as upper:
            if is_new:
                below = self._layers[0] if self._layers else self._base
                os.chmod(upper, stat.S_IMODE(os.stat(below, follow_symlinks=False).st_mode))
        self._current, self._is_first = new_work_directory(self._works)

    @property
    def work(self) -> tuple[bytes, bytes]:
        """The mount's work directory: its parent, and its name."""
        return self._works, self._current

    def tidy(self) -> None:
        """Remove earlier mounts' work directories."""
        if not self._is_first:
            remove_old_work_directories(self._works, self._current)

    def unmounted(self) -> None:
        """Let the user remove the directories that the mount has left."""
        open_work_directories(self._works)

    def mount(self) -> Overlay:
        return Overlay((*self._layers, self._base), self._upper, self._works + b"/" + self._current)

    def differences(self, lower: Source) -> Iterator[RawDifference]:
        yield from layer_differences(self._upper, lower, tidy=not self.is_live, tidied=self._tidied)

    def _tidied(self) -> None:
        self.has_tidied = True


def layer_differences(
    layer: bytes,
    lower: Source,
    *,
    tidy: bool = False,
    tidied: Callable[[], None] = lambda: None,
    by_fuse: bool = False,
) -> Iterator[RawDifference]:
    """Yield the differences between a layer and the tree below it. Whiteouts and opaque directories become explicit
    deletions.

    ``tidy``: remove whiteouts that hide no entry (the user has deleted the hidden one), because a directory with a
    whiteout could not be applied by a rename. ``tidied`` is called for each that is removed. ``by_fuse``: the layer has
    fuse-overlayfs marks.
    """
    read = listing
    if by_fuse:
        from mudroom.stage.layers.fuse_marks import fuse_listing as read
    with Descriptor(open_layer(layer)) as root, loosened(root) as enter:
        yield from _walk(root, lower, enter, tidy, tidied, read)


def _walk(
    layer: int,
    lower: Source,
    enter: Callable[[bytes, Entry], None],
    tidy: bool,
    tidied: Callable[[], None],
    read: Callable[[int, bool], LayerListing],
) -> Iterator[RawDifference]:
    """Walk both trees side by side, directory by directory.

    Each pending item: path, whether there is a directory below, and whether that is hidden. Only the topmost directory
    in a hidden tree is marked opaque (fs/overlayfs/dir.c, ovl_create_upper: "setting opaque here is just an
    optimization" where the parent is a merged one), so the flag is passed down.
    """
    from mudroom.stage.form import left_at

    root_lower, root_staged = lower.look(b""), look(layer, b".")
    if root_lower is not None and root_staged is not None and not is_same_root(root_lower, root_staged):
        yield RawDifference(b"", root_lower, root_staged)
    pending: list[tuple[bytes, bool, bool]] = [(b"", True, False)]
    while pending:
        path, merged, hidden = pending.pop()
        prefix = path + b"/" if path else b""
        with directory(layer, path) as opened:
            layer_listing = read(opened, path != b"")
            left = {name: found for name in layer_listing.entries if (found := left_at(opened, name))}
        if layer_listing.opaque and not hidden:
            yield RawDifference(path, None, None, hides=True)
            hidden = True
        below = _names_below(lower, path, layer_listing, hidden) if merged else {}
        for name in layer_listing.gone:
            original = below.get(name)
            if original is not None:
                yield from deleted(lower, prefix + name, original)
            elif tidy:
                with reach(layer, prefix + name) as (above, rest):
                    disk.unlink(above, rest)
                tidied()
        for name, entry in layer_listing.entries.items():
            at, original = prefix + name, below.get(name)
            if entry.kind == "directory" and is_too_deep(at):
                yield RawDifference(path, None, None, too_deep=True)
            elif entry.kind == "directory":
                yield RawDifference(at, original, entry, left=left.get(name, NO_ATTRIBUTES))
                enter(at, entry)
                pending.append((at, original is not None and original.kind == "directory", hidden))
            else:
                if original is not None and original.kind == "directory":
                    yield from deleted_below(lower, at)
                yield RawDifference(at, original, entry, left=left.get(name, NO_ATTRIBUTES))
        if merged and hidden:
            for name, original in below.items():
                if name not in layer_listing.entries and name not in layer_listing.gone:
                    yield from deleted(lower, prefix + name, original)


def _names_below(lower: Source, path: bytes, layer_listing: LayerListing, hidden: bool) -> dict[bytes, Entry]:
    """Return the entries below at a directory's names; all entries if it is hidden."""
    if hidden or len(layer_listing.entries) + len(layer_listing.gone) > _FEW:
        return lower.names(path)
    prefix = path + b"/" if path else b""
    originals = {name: lower.look(prefix + name) for name in (*layer_listing.entries, *layer_listing.gone)}
    return {name: entry for name, entry in originals.items() if entry is not None}


def deleted(lower: Source, path: bytes, original: Entry) -> Iterator[RawDifference]:
    """Yield explicit deletions for a whiteout: the original, and everything below it."""
    yield RawDifference(path, original, None)
    if original.kind == "directory":
        yield from deleted_below(lower, path)


def deleted_below(lower: Source, path: bytes) -> Iterator[RawDifference]:
    pending = [path]
    while pending:
        path = pending.pop()
        for name, entry in lower.names(path).items():
            at = path + b"/" + name
            if entry.kind == "directory" and is_too_deep(at):
                continue  # no change in it is known
            yield RawDifference(at, entry, None)
            if entry.kind == "directory":
                pending.append(at)
