"""A pool of cache entries, and its bounds.

Beside the pool's directory lies ``<pool>.size``: the bytes that were published since the pool was last measured, and
the bytes that it had then. The sum is an upper bound, since a published file may replace another; before anything is
removed, the pool is measured.

A cache is removed as a whole, the one first that nothing was published to for longest: some tools take a directory for
complete if it exists (Go's module cache, Cargo's sources), so single files cannot be removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from mudroom.core.confinement.cache_place import NAMES
from mudroom.core.confinement.limit import show_size
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.disk_usage import measure


class SharedCache:
    """The holder of its lock may change it."""

    def __init__(self, pools: bytes, name: bytes) -> None:
        self.path = pools + b"/" + name

    @property
    def size(self) -> int:
        try:
            with open(self.path + b".size", "rb") as stream:
                return int(stream.read() or b"0")
        except (FileNotFoundError, ValueError):
            return 0

    def add(self, published: Mapping[bytes, int], limit: int) -> list[str]:
        """Count what was published, and keep the pool within ``limit`` bytes. Return notes."""
        if not published:
            return []
        for cache in published:
            os.utime(self.path + b"/" + cache)
        size = self.size + sum(published.values())
        notes = []
        if size > limit:
            size, removed = self._shrink(limit)
            notes = [f"caches were removed to stay within {show_size(limit)} (caches.limit): {', '.join(removed)}"]
            notes = notes if removed else []
        self._write(size)
        return notes

    def expire(self, before: int) -> int:
        """Remove caches to which nothing was published since ``before``, in nanoseconds. Return the bytes freed."""
        old = [name for name in self._filled() if self._last(name) < before]
        freed = sum(self._remove(name) for name in old)
        if freed:
            self._write(max(self.size - freed, 0))
        return freed

    def _shrink(self, limit: int) -> tuple[int, list[str]]:
        sizes = {name: measure(self.path + b"/" + name) for name in self._filled()}
        removed = []
        for name in sorted(sizes, key=self._last):
            if sum(sizes.values()) <= limit:
                break
            self._remove(name)
            removed.append(os.fsdecode(name))
            sizes[name] = 0
        return sum(sizes.values()), removed

    def _filled(self) -> list[bytes]:
        """Return the names of the caches that have entries."""
        return [name for name in NAMES if os.listdir(self.path + b"/" + name)]

    def _last(self, name: bytes) -> int:
        return os.stat(self.path + b"/" + name).st_mtime_ns

    def _remove(self, name: bytes) -> int:
        """Remove the entries of a cache. Return their bytes on disk."""
        place = self.path + b"/" + name
        size = measure(place)
        gone = self.path + b".old"
        if os.path.isdir(gone):
            remove_tree(gone)  # left by a crash
        os.rename(place, gone)
        os.mkdir(place, 0o700)
        remove_tree(gone)
        return size

    def _write(self, size: int) -> None:
        with open(self.path + b".size.new", "wb") as stream:
            stream.write(b"%d" % size)
        os.rename(self.path + b".size.new", self.path + b".size")


def shared_caches(cache: bytes) -> Iterator[SharedCache]:
    """Yield all pools of a vault's cache directory."""
    for variant in sorted(os.listdir(cache)):
        place = cache + b"/" + variant
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
            if b"." not in name:
                yield SharedCache(place, name)
