"""Files of mudroom's own that were read, kept with what they come to for as long as they are the same files.

For a server, which is asked about the same fork again and again, by several threads at a time. What is kept of a file
is only given if the file has the stamp that it had before it was read, and only kept if whoever writes to it from then
on gives it another one (``stamp.py``).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from mudroom.stage.reader import FileReader, T, V
from mudroom.stage.stamp import Stamp, is_settled, stamp_of

LIMIT = 16 << 20
"""Bytes of all files that are kept, as they are on disk: records of 120,000 changes. With all that they come to, they
take up to thirteen times as much."""
_LEAST = 1 << 10
"""What a small file counts for: the limit is one for many of them, too."""


class _File:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Of two who ask for it at once, one reads."""
        self.stamp: Stamp | None = None
        """None: nothing is kept."""
        self.value: Any = None
        self.comes_to: dict[Any, Any] = {}
        self.weight = 0
        """What it counts for, while it does."""


_Key = tuple[bytes, Callable[[bytes], Any]]


class FileCache(FileReader):
    def __init__(self, limit: int = LIMIT, clock: Callable[[], int] = time.time_ns) -> None:
        self._limit, self._clock = limit, clock
        self._lock = threading.Lock()
        """Of all that follows. Whoever has the lock of a file may take this one, never the other way round."""
        self._files: OrderedDict[_Key, _File] = OrderedDict()
        """Those that were asked for last come last."""
        self._values: dict[int, _File] = {}
        """By ``id`` of the value, which cannot be another one's: the file holds the value."""
        self.weight = 0
        """Of all that is kept, in bytes."""

    def __len__(self) -> int:
        return len(self._files)

    def of(self, path: bytes, read: Callable[[bytes], T]) -> T:
        key: _Key = path, read
        with self._lock:
            file = self._files.setdefault(key, _File())
            self._files.move_to_end(key)
        with file.lock:
            now, stamp = self._clock(), stamp_of(path)  # before it is read: what is read may be newer, never older
            if stamp is not None and stamp == file.stamp:
                found: T = file.value
                return found
            self._let_go(file)
            try:
                value = read(path)
            except BaseException:
                self._remove(key, file)
                raise
            if stamp is not None and stamp.size <= self._limit and is_settled(stamp.ctime, now):
                self._keep(key, file, stamp, value)
            else:
                self._remove(key, file)
            return value

    def come_to(self, value: V, what: Callable[[V], T]) -> T:
        with self._lock:
            file = self._values.get(id(value))
        if file is None:
            return what(value)
        with file.lock:
            if file.value is not value:  # it has been read anew meanwhile
                return what(value)
            if what not in file.comes_to:
                file.comes_to[what] = what(value)
            found: T = file.comes_to[what]
            return found

    def _keep(self, key: _Key, file: _File, stamp: Stamp, value: Any) -> None:
        with self._lock:
            other = self._files.get(key)
            if other is not None and other is not file:  # this one was put out while it was read
                self._discount(other)
            file.stamp, file.value, file.weight = stamp, value, max(stamp.size, _LEAST)
            self._files[key] = self._values[id(value)] = file
            self.weight += file.weight
            while self.weight > self._limit:
                _key, oldest = self._files.popitem(last=False)
                self._discount(oldest)

    def _let_go(self, file: _File) -> None:
        with self._lock:
            self._discount(file)
            file.stamp, file.value, file.comes_to = None, None, {}

    def _remove(self, key: _Key, file: _File) -> None:
        with self._lock:
            if self._files.get(key) is file:
                del self._files[key]

    def _discount(self, file: _File) -> None:
        """It counts no more. Whoever has just been given what it holds goes on with that."""
        self.weight -= file.weight
        file.weight = 0
        if self._values.get(id(file.value)) is file:
            del self._values[id(file.value)]
