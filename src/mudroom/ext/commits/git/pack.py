"""Reader for packs that an agent may have written: gitformat-pack(5), pack and index version 2.

The contents are not trusted. The index is only a hint: a wrong offset leads to damage, or to an object with another
hash, and the caller compares the hash.
"""

from __future__ import annotations

import os

from dulwich.lru_cache import LRUSizeCache
from dulwich.pack import apply_delta

from mudroom.ext.commits.git.read import OBJECT_LIMIT, Allowance, UnpackedObject, check_size
from mudroom.stage import disk
from mudroom.typing import NamedTuple

DEPTH_LIMIT = 4095  # git's own maximum: pack-objects.h, OE_DEPTH_BITS
_CACHE_SIZE = 32 << 20
_KINDS = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_OFFSET_DELTA, _NAMED_DELTA = 6, 7


class Bases(LRUSizeCache[tuple[int, int], tuple[bytes, bytes]]):
    """Cache of delta bases, by pack and offset."""

    def __init__(self) -> None:
        super().__init__(_CACHE_SIZE, compute_size=lambda found: len(found[1]) + 200)


class _Header(NamedTuple):
    kind: int
    size: int
    base: int | None
    """The base's offset, if the object is a delta."""
    content: int


class Pack:
    """A pack and its index. ``index`` and ``content``: descriptors, closed by ``close``. Methods raise ValueError for
    damaged data."""

    def __init__(
        self,
        index: int,
        content: int,
        id_length: int,
        allowance: Allowance,
        bases: Bases,
    ) -> None:
        self._index, self._content, self._id_length = index, content, id_length
        self._allowance, self._bases = allowance, bases
        head = disk.pread(index, 8 + 1024, 0)
        self._fan = [int.from_bytes(head[at : at + 4], "big") for at in range(8, len(head), 4)]
        self._is_sound = head[:8] == b"\xfftOc\0\0\0\2" and len(self._fan) == 256 and self._fan == sorted(self._fan)

    def close(self) -> None:
        os.close(self._index)
        os.close(self._content)

    def find(self, raw: bytes) -> int | None:
        """Return an object's offset according to the index, or None. Raise ValueError if the index is damaged."""
        if not self._is_sound:
            raise ValueError("may be in a pack whose index is damaged")
        low, high = self._fan[raw[0] - 1] if raw[0] else 0, self._fan[raw[0]]
        while low < high:
            middle = (low + high) // 2
            candidate = disk.pread(self._index, self._id_length, 1032 + middle * self._id_length)
            if candidate == raw:
                return self._offset(middle)
            if candidate < raw:
                low = middle + 1
            else:
                high = middle
        return None

    def _offset(self, position: int) -> int:
        count = self._fan[255]
        table = 1032 + count * (self._id_length + 4)
        offset = self._number(table + position * 4, 4)
        if offset < 1 << 31:
            return offset
        return self._number(table + count * 4 + (offset - (1 << 31)) * 8, 8)

    def _number(self, at: int, length: int) -> int:
        data = disk.pread(self._index, length, at)
        if len(data) != length:
            raise ValueError("may be in a pack whose index is damaged")
        return int.from_bytes(data, "big")

    def read(self, offset: int) -> tuple[bytes, bytes]:
        """Return the kind and content of the object at ``offset``. Raise ValueError or ApplyDeltaError."""
        deltas: list[tuple[int, bytes]] = []
        weight = 0
        while True:
            known = self._bases.get((self._content, offset))
            if known is not None:
                kind, data = known
                break
            header = self._header(offset)
            check_size(header.size)
            weight += header.size
            if weight > 2 * OBJECT_LIMIT:
                raise ValueError("is made of more data than is read")
            content = UnpackedObject(self._content, header.content, self._allowance).last(header.size)
            if header.base is None:
                kind, data = _KINDS[header.kind], content
                self._bases[self._content, offset] = kind, data
                break
            deltas.append((offset, content))
            if len(deltas) > DEPTH_LIMIT:
                raise ValueError(f"is the end of more than {DEPTH_LIMIT:,} deltas")
            offset = header.base
        for at, delta in reversed(deltas):
            data = self._apply(data, delta)
            self._bases[self._content, at] = kind, data
        return kind, data

    def _apply(self, base: bytes, delta: bytes) -> bytes:
        _size, at = _varint(delta, 0)
        size, _at = _varint(delta, at)
        check_size(size)
        self._allowance.spend(size)
        return b"".join(apply_delta(base, delta))

    def _header(self, offset: int) -> _Header:
        start = disk.pread(self._content, 64, offset) if offset < 1 << 62 else b""
        if not start:
            raise ValueError("is not where the index of its pack says")
        kind, size = start[0] >> 4 & 7, start[0] & 15
        at = 1
        if start[0] & 0x80:
            more, at = _varint(start, 1)
            size |= more << 4
        if kind in _KINDS:
            return _Header(kind, size, None, offset + at)
        if kind == _NAMED_DELTA:
            base = self.find(start[at : at + self._id_length])
            if base is None:
                raise ValueError("is a delta to an object that its pack does not have")
            return _Header(kind, size, base, offset + at + self._id_length)
        if kind != _OFFSET_DELTA:
            raise ValueError("is of a kind that git does not know")
        back, at = _distance(start, at)
        if not 0 < back <= offset:
            raise ValueError("is a delta to something outside of its pack")
        return _Header(kind, size, offset - back, offset + at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number with seven bits a byte, least significant first, and the offset after it."""
    value = 0
    for shift in range(0, 63, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("is damaged")


def _distance(data: bytes, at: int) -> tuple[int, int]:
    """Return the distance back to a delta's base, and the offset after the number: seven bits a byte, most significant
    first, each further byte adding one (gitformat-pack(5))."""
    value = -1
    for _digit in range(9):
        if at >= len(data):
            break
        value = (value + 1) << 7 | data[at] & 0x7F
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("is damaged")
