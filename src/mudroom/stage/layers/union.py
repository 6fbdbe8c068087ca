"""Base and layers merged, as an overlay mount would show them, read without a mount.

A union is for reading while nothing writes to its layers; make a new one afterwards. The base may move: it is asked
every time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ancestors, parent
from mudroom.core.tree.path import name as last
from mudroom.stage.beneath import look, open_root
from mudroom.stage.layers.closed_directory import look_through
from mudroom.stage.layers.layer import LayerListing, is_whiteout, open_staged, read_directory
from mudroom.stage.source import OpenSource, Source


class _Levels(NamedTuple):
    """What makes up one directory of the merged tree, topmost first."""

    layers: tuple[tuple[int, LayerListing], ...]
    base: bool
    """Whether the base shows through."""


class Union:
    """``layers``: paths of layer directories, topmost first. ``base``: what lies below all of them; None for the
    layers alone (what is staged), in which a name that only the base has is not there."""

    def __init__(self, layers: Sequence[bytes], base: Source | None) -> None:
        self._base = base
        self._roots: list[int] = []
        self._levels: dict[bytes, _Levels] = {}
        try:
            for path in layers:
                self._roots.append(open_root(path))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Union:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """The layers' descriptors. The base stays its owner's."""
        for root in self._roots:
            os.close(root)
        self._roots.clear()
        self._levels.clear()

    def look(self, path: bytes) -> Entry | None:
        if not path:
            return look(self._roots[0], b".") if self._roots else self._base.look(b"") if self._base else None
        found = self._find(path)
        return found[1] if found is not None else None

    def names(self, path: bytes) -> dict[bytes, Entry]:
        levels = self._at(path)
        found = self._base.names(path) if levels.base and self._base is not None else {}
        for _root, listing in reversed(levels.layers):
            for name in listing.gone:
                found.pop(name, None)
            found.update(listing.entries)
        return found

    def open(self, path: bytes) -> int:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(2, os.strerror(2), path)
        if found[0] is None:
            assert self._base is not None
            return self._base.open(path)
        return open_staged(found[0], path)

    def _find(self, path: bytes) -> tuple[int | None, Entry] | None:
        """The entry, and the root of the layer it is in; None for the base."""
        levels, name = self._at(parent(path)), last(path)
        for root, listing in levels.layers:
            if name in listing.gone:
                return None
            if name in listing.entries:
                return root, listing.entries[name]
        below = self._base.look(path) if levels.base and self._base is not None else None
        return None if below is None else (None, below)

    def _at(self, path: bytes) -> _Levels:
        known = self._levels.get(path)
        if known is None:
            for above in (b"", *ancestors(path), path):  # not recursive: a tree can be deeper than the stack
                if above not in self._levels:
                    self._levels[above] = self._compute(above)
            known = self._levels[path]
        return known

    def _compute(self, path: bytes) -> _Levels:
        if not path:
            found = [(root, read_directory(root, b"")) for root in self._roots]
            return _Levels(tuple((root, one) for root, one in found if one is not None), self._base is not None)
        above, name = self._levels[parent(path)], last(path)
        layers: list[tuple[int, LayerListing]] = []
        for root, listing in above.layers:
            if name in listing.gone:
                return _Levels(tuple(layers), False)
            entry = listing.entries.get(name)
            if entry is None:
                continue
            here = read_directory(root, path) if entry.kind == "directory" else None
            if here is None:
                return _Levels(tuple(layers), False)
            layers.append((root, here))
            if here.opaque:
                return _Levels(tuple(layers), False)
        return _Levels(tuple(layers), above.base)


class OneLayer(OpenSource):
    """What a single layer holds. The same as a union of it without a base, in fewer steps."""

    def look(self, path: bytes) -> Entry | None:
        entry = look_through(self.root, path)
        return None if entry is not None and is_whiteout(self.root, path, entry) else entry

    def names(self, path: bytes) -> dict[bytes, Entry]:
        found = read_directory(self.root, path)
        return found.entries if found is not None else {}

    def open(self, path: bytes) -> int:
        return open_staged(self.root, path)


def staged_source(layers: Sequence[bytes]) -> OneLayer | Union:
    """What layers hold, topmost first, without what lies below them."""
    return OneLayer(layers[0]) if len(layers) == 1 else Union(layers, None)
