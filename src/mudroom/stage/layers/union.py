"""Base and layers merged, as an overlay mount would show them, read without a mount.

A union is valid while its layers are not written to; create a new one afterwards. The base may change: it is read at
every call.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.core.system.closing import ClosedOnError, Closing
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import name as last
from mudroom.core.tree.path import parent
from mudroom.stage.beneath import look, open_layer
from mudroom.stage.layers.closed_directory import look_through
from mudroom.stage.layers.layer import LayerListing, is_whiteout, open_staged, read_directory
from mudroom.stage.source import OpenSource, Source
from mudroom.typing import NamedTuple


class _Levels(NamedTuple):
    """The layers that make up one directory in the merged tree, topmost first."""

    layers: tuple[tuple[int, LayerListing], ...]
    base: bool
    """Whether the base shows through."""


class Union:
    """``layers``: paths of layer directories, topmost first. ``base``: the tree below all of them, or None to read the
    layers alone (the staged files); a name that only the base has does not exist then."""

    def __init__(self, layers: Sequence[bytes], base: Source | None) -> None:
        self._base = base
        self._roots: list[int] = []
        self._levels: dict[bytes, _Levels] = {}
        with ClosedOnError(self):
            for path in layers:
                self._roots.append(open_layer(path))

    def __enter__(self) -> Union:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the layers' descriptors. The caller owns the base."""
        for root in self._roots:
            os.close(root)
        self._roots.clear()
        self._levels.clear()

    def look(self, path: bytes) -> Entry | None:
        if not path:
            return look(self._roots[0], b".") if self._roots else self._base.look(b"") if self._base else None
        located = self._find(path)
        return located[1] if located is not None else None

    def names(self, path: bytes) -> dict[bytes, Entry]:
        levels = self._at(path)
        entries = self._base.names(path) if levels.base and self._base is not None else {}
        for _root, listing in reversed(levels.layers):
            for name in listing.gone:
                entries.pop(name, None)
            entries.update(listing.entries)
        return entries

    def open(self, path: bytes) -> int:
        located = self._find(path)
        if located is None:
            raise FileNotFoundError(2, os.strerror(2), path)
        if located[0] is None:
            assert self._base is not None
            return self._base.open(path)
        return open_staged(located[0], path)

    def _find(self, path: bytes) -> tuple[int | None, Entry] | None:
        """Return the entry with its layer's root, None for the base; or None if the path does not exist."""
        levels, name = self._at(parent(path)), last(path)
        for root, listing in levels.layers:
            if name in listing.gone:
                return None
            if name in listing.entries:
                return root, listing.entries[name]
        below = self._base.look(path) if levels.base and self._base is not None else None
        return None if below is None else (None, below)

    def _at(self, path: bytes) -> _Levels:
        levels = self._levels.get(path)
        if levels is None:
            missing = [path]  # not recursive: a tree can be deeper than the stack
            while missing[-1] and (above := parent(missing[-1])) not in self._levels:
                missing.append(above)
            for above in reversed(missing):
                self._levels[above] = self._compute(above)
            levels = self._levels[path]
        return levels

    def _compute(self, path: bytes) -> _Levels:
        if not path:
            listings = [(root, read_directory(root, b"")) for root in self._roots]
            present = tuple((root, top) for root, top in listings if top is not None)
            return _Levels(present, self._base is not None)
        above, name = self._levels[parent(path)], last(path)
        layers: list[tuple[int, LayerListing]] = []
        for root, listing in above.layers:
            if name in listing.gone:
                return _Levels(tuple(layers), False)
            entry = listing.entries.get(name)
            if entry is None:
                continue
            below = read_directory(root, path) if entry.kind == "directory" else None
            if below is None:
                return _Levels(tuple(layers), False)
            layers.append((root, below))
            if below.opaque:
                return _Levels(tuple(layers), False)
        return _Levels(tuple(layers), above.base)


class OneLayer(Closing):
    """A single layer's content. Equivalent to a union of that layer without a base, in fewer steps."""

    def __init__(self, path: bytes, *, is_layer: bool = True) -> None:
        """``is_layer`` is False for a command's copy, which holds everything."""
        self._layer = OpenSource(path, is_layer=is_layer)

    def close(self) -> None:
        self._layer.close()

    def look(self, path: bytes) -> Entry | None:
        root = self._layer.root
        entry = look_through(root, path)
        return None if entry is not None and is_whiteout(root, path, entry) else entry

    def names(self, path: bytes) -> dict[bytes, Entry]:
        listing = read_directory(self._layer.root, path)
        return listing.entries if listing is not None else {}

    def open(self, path: bytes) -> int:
        return open_staged(self._layer.root, path)


def staged_source(layers: Sequence[bytes]) -> OneLayer | Union:
    """Return a source that reads the layers, topmost first, without the tree below them."""
    return OneLayer(layers[0]) if len(layers) == 1 else Union(layers, None)
