"""Cache of parsed state files, with the values derived from them. An entry is valid while the file's stat stamp is
unchanged.

Meant for a server, where several threads ask about the same fork again and again. An entry is returned only if the file
still has the stamp that it had before it was read. It is stored only if every later write is certain to change that
stamp (``stamp.py``).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from mudroom.stage.reader import FileReader, T, V
from mudroom.stage.stamp import Stamp, is_settled, stamp_of
from mudroom.typing import Any

LIMIT = 16 << 20
"""Total size of the cached files on disk, in bytes: the records of 120,000 changes. In memory, with the derived values,
they take up to thirteen times as much."""
_LEAST = 1 << 10
"""Minimum weight per file in bytes, so that the limit also bounds the number of small files."""


class _File:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while the file is read: of two concurrent callers, only one reads."""
        self.stamp: Stamp | None = None
        """None while no value is cached."""
        self.value: Any = None
        self.derived_values: dict[Any, Any] = {}
        self.weight = 0
        """Bytes that count towards the limit while the entry is cached."""


_Key = tuple[bytes, Callable[[bytes], Any]]


class FileCache(FileReader):
    """``_lock`` guards the entries and their weight; each entry has a lock for reading its file."""

    def __init__(self, limit: int = LIMIT, clock: Callable[[], int] = time.time_ns) -> None:
        self._limit, self._clock = limit, clock
        self._lock = threading.Lock()
        """Guards everything below. A holder of a file's lock may take this lock, never the other way round."""
        self._files: OrderedDict[_Key, _File] = OrderedDict()
        """Ordered by last use, most recent last."""
        self._values: dict[int, _File] = {}
        """By ``id`` of the value. The id cannot be reused, because the file holds the value."""
        self.weight = 0
        """Total weight in bytes."""

    def __len__(self) -> int:
        return len(self._files)

    def of(self, path: bytes, read: Callable[[bytes], T]) -> T:
        key: _Key = path, read
        with self._lock:
            file = self._files.setdefault(key, _File())
            self._files.move_to_end(key)
        with file.lock:
            # before the read: the content may be newer than the stamp, never older
            now, stamp = self._clock(), stamp_of(path)
            if stamp is not None and stamp == file.stamp:
                cached: T = file.value
                return cached
            self._invalidate(file)
            try:
                value = read(path)
            except BaseException:
                self._remove(key, file)
                raise
            if stamp is not None and stamp.size <= self._limit and is_settled(stamp.ctime, now):
                self._store(key, file, stamp, value)
            else:
                self._remove(key, file)
            return value

    def derive(self, value: V, derive: Callable[[V], T]) -> T:
        with self._lock:
            file = self._values.get(id(value))
        if file is None:
            return derive(value)
        with file.lock:
            if file.value is not value:  # read again meanwhile
                return derive(value)
            if derive not in file.derived_values:
                file.derived_values[derive] = derive(value)
            derived: T = file.derived_values[derive]
            return derived

    def _store(self, key: _Key, file: _File, stamp: Stamp, value: Any) -> None:
        with self._lock:
            other = self._files.get(key)
            if other is not None and other is not file:  # this entry was evicted during the read
                self._discount(other)
            file.stamp, file.value, file.weight = stamp, value, max(stamp.size, _LEAST)
            self._files[key] = self._values[id(value)] = file
            self.weight += file.weight
            while self.weight > self._limit:
                _key, oldest = self._files.popitem(last=False)
                self._discount(oldest)

    def _invalidate(self, file: _File) -> None:
        with self._lock:
            self._discount(file)
            file.stamp, file.value, file.derived_values = None, None, {}

    def _remove(self, key: _Key, file: _File) -> None:
        with self._lock:
            if self._files.get(key) is file:
                del self._files[key]

    def _discount(self, file: _File) -> None:
        """Stop counting the entry. A caller that already has its value keeps that."""
        self.weight -= file.weight
        file.weight = 0
        if self._values.get(id(file.value)) is file:
            del self._values[id(file.value)]
