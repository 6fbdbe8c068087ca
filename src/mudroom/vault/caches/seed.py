"""Initial content for a fork's own caches, where no overlay can show the pools."""

from __future__ import annotations

from contextlib import closing

from mudroom.stage.copy import clone, listed
from mudroom.stage.layers.union import staged_source
from mudroom.vault.caches.pool import SharedCache


def copy_pools(pools: tuple[bytes, ...], target: int, limit: int) -> None:
    """Copy the pools' entries, topmost first, into an empty directory; copy nothing if they exceed ``limit`` bytes.
    Uses reflinks where the file system has them."""
    places = [place.rpartition(b"/") for place in pools]
    if sum(SharedCache(above, name).size for above, _slash, name in places) > limit:
        return
    with closing(staged_source(pools)) as source:
        clone(source, target, listed(source))
