"""A cache pool, and its size limit.

Beside the pool's directory lies ``<pool>.size``: the bytes at the last measurement plus the bytes published since. This
sum is an upper bound, since a published file may replace another; the pool is measured before anything is removed. The
cache names follow, least recently published first.

A cache is removed as a whole, starting with the least recently published: some tools take a directory for complete if
it exists (Go's module cache, Cargo's sources), so single files cannot be removed. The order is that of
publications, not of times, since the clock can be set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from mudroom.core.confinement.cache_place import NAMES
from mudroom.core.confinement.limit import show_size
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.disk_usage import measure


class SharedCache:
    """A pool on disk. Only the holder of its lock may change it."""

    def __init__(self, pools: bytes, name: bytes) -> None:
        self.path = pools + b"/" + name

    @property
    def size(self) -> int:
        return self._noted()[0]

    def _noted(self) -> tuple[int, list[bytes]]:
        """Return the pool's bytes, and its caches, least recently published first."""
        try:
            with open(self.path + b".size", "rb") as stream:
                size, *names = stream.read().split(b" ")
            return int(size or b"0"), names
        except (FileNotFoundError, ValueError):
            return 0, []

    def add(self, published: Mapping[bytes, int], limit: int) -> list[str]:
        """Count published bytes (by cache), and keep the pool within ``limit`` bytes. Return notes."""
        if not published:
            return []
        for cache in published:
            os.utime(self.path + b"/" + cache)
        before, names = self._noted()
        order = [name for name in names if name not in published] + sorted(published)
        size = before + sum(published.values())
        notes = []
        if size > limit:
            size, removed = self._shrink(limit, order)
            notes = [f"caches were removed to stay within {show_size(limit)} (caches.limit): {', '.join(removed)}"]
            notes = notes if removed else []
        self._write(size, order)
        return notes

    def expired_size(self, before: int) -> int:
        """Return the bytes that ``expire`` would free."""
        return sum(measure(self.path + b"/" + name) for name in self._expired(before))

    def expire(self, before: int) -> int:
        """Remove caches without a publication since ``before``, a time from ``core/clock.py:horizon``. Return the bytes
        freed."""
        freed = sum(self._remove(name) for name in self._expired(before))
        if freed:
            size, order = self._noted()
            self._write(max(size - freed, 0), order)
        return freed

    def _expired(self, before: int) -> list[bytes]:
        return [name for name in self._filled() if self._last(name) < before]

    def _shrink(self, limit: int, order: Sequence[bytes]) -> tuple[int, list[str]]:
        sizes = {name: measure(self.path + b"/" + name) for name in self._filled()}
        removed = []
        for name in sorted(sizes, key=lambda name: order.index(name) if name in order else -1):
            if sum(sizes.values()) <= limit:
                break
            self._remove(name)
            removed.append(os.fsdecode(name))
            sizes[name] = 0
        return sum(sizes.values()), removed

    def _filled(self) -> list[bytes]:
        """Return the names of non-empty caches."""
        return [name for name in NAMES if os.listdir(self.path + b"/" + name)]

    def _last(self, name: bytes) -> int:
        return os.stat(self.path + b"/" + name).st_mtime_ns

    def _remove(self, name: bytes) -> int:
        """Remove a cache's entries. Return their bytes on disk."""
        place = self.path + b"/" + name
        size = measure(place)
        gone = self.path + b".old"
        if os.path.isdir(gone):
            remove_tree(gone)  # left by a crash
        disk.rename_path(place, gone)
        os.mkdir(place, 0o700)
        remove_tree(gone)
        return size

    def _write(self, size: int, order: Sequence[bytes]) -> None:
        safe_open.replace(self.path + b".size", b" ".join((b"%d" % size, *order)), durable=False)


def shared_caches(cache: bytes) -> Iterator[SharedCache]:
    """Yield all pools in a vault's cache directory."""
    for variant in sorted(os.listdir(cache)):
        place = cache + b"/" + variant
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
            if b"." not in name:
                yield SharedCache(place, name)
