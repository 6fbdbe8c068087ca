"""The commits in a held push's pack, and whether its content may hold a secret.

Rules of this file: the pack is untrusted, so what is unpacked is bounded before it is unpacked, and an object counts by
the hash of its content. A delta against an object that the pack does not have stays unread, but for the text that it
adds. gitformat-pack(5).
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable, Mapping

from dulwich.errors import ApplyDeltaError
from dulwich.pack import UnpackedObject, apply_delta, take_msb_bytes, unpack_object

from mudroom.stage import disk
from mudroom.typing import NamedTuple

MOST_OBJECTS, MOST_BYTES = 200_000, 256 << 20
_KINDS = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_OFFSET, _NAMED = 6, 7
_MOST_DIGITS = 10
"""Bytes of a number in a pack: 64 bits."""
_SUBJECT = 120


class PackedCommit(NamedTuple):
    parents: tuple[str, ...]
    subject: str


class PackView(NamedTuple):
    commits: Mapping[str, PackedCommit]
    tags: Mapping[str, str]
    """The object behind each annotated tag."""
    has_secret: bool
    is_whole: bool
    """False if the pack has more than is read."""


def view_pack(descriptor: int, at: int, end: int, is_secret: Callable[[bytes], bool]) -> PackView:
    """Return what a pack has between two offsets of a file. Raise ValueError if it is damaged."""
    count, left = int.from_bytes(disk.pread(descriptor, 4, at + 8), "big"), MOST_BYTES
    stream, entries = _PackStream(descriptor, at + 12, end), dict[int, UnpackedObject]()
    for _object in range(min(count, MOST_OBJECTS)):
        start = stream.at
        left -= stream.size() + 100
        if left <= 0:
            break
        entries[start] = stream.next()
    objects, has_secret = _resolved(entries), False
    commits: dict[str, PackedCommit] = {}
    tags: dict[str, str] = {}
    for name, (kind, data) in objects.items():
        if kind == b"commit":
            commits[name] = _commit(data)
        elif kind == b"tag" and data.startswith(b"object "):
            tags[name] = data[7:47].decode("ascii", "replace")
        has_secret = has_secret or (kind != b"tree" and is_secret(data))
    unread = (b"".join(entry.decomp_chunks) for entry in entries.values() if entry.pack_type_num not in _KINDS)
    has_secret = has_secret or any(map(is_secret, unread))
    return PackView(commits, tags, has_secret, len(entries) == count)


class _PackStream:
    """Reads a pack's entries in order. Owner: the caller of ``view_pack``."""

    def __init__(self, descriptor: int, at: int, end: int) -> None:
        self._descriptor, self.at, self._end = descriptor, at, end
        self._digits = 0

    def size(self) -> int:
        """Return the size of the next entry's content, which is not unpacked."""
        raw = _digits(io.BytesIO(disk.pread(self._descriptor, _MOST_DIGITS, self.at)))
        return (raw[0] & 15) + sum((digit & 0x7F) << 7 * number + 4 for number, digit in enumerate(raw[1:]))

    def next(self) -> UnpackedObject:
        self._digits = 0
        try:
            entry, unused = unpack_object(self._read, hashlib.sha1, self._some)
        except (zlib.error, AssertionError, TypeError):
            raise ValueError("the pack is damaged") from None
        if entry.pack_type_num not in (*_KINDS, _OFFSET, _NAMED):
            raise ValueError("the pack is damaged")
        self.at -= len(unused)
        return entry

    def _read(self, size: int) -> bytes:
        self._digits += 1
        if self._digits > 2 * _MOST_DIGITS:
            raise ValueError("the pack is damaged")
        return self._some(size)

    def _some(self, size: int) -> bytes:
        data = disk.pread(self._descriptor, min(size, self._end - self.at), self.at) if self.at < self._end else b""
        if not data:
            raise ValueError("the pack is cut off")
        self.at += len(data)
        return data


def _digits(stream: io.BytesIO) -> list[int]:
    """Return a number's bytes. Raise ValueError if it is cut off."""
    try:
        return take_msb_bytes(stream.read)[0]
    except TypeError:
        raise ValueError("the pack is damaged") from None


def _resolved(entries: Mapping[int, UnpackedObject]) -> dict[str, tuple[bytes, bytes]]:
    """Return the objects by name. Deltas whose base is not in the pack are left out."""
    by_place: dict[int, tuple[bytes, bytes]] = {}
    by_name: dict[str, tuple[bytes, bytes]] = {}
    waiting = list(entries.items())
    left = MOST_BYTES
    while waiting:
        later = []
        for place, entry in waiting:
            data, base = b"".join(entry.decomp_chunks), entry.delta_base
            if base is None:
                found = _KINDS[entry.pack_type_num], data
            else:
                below = by_place.get(place - base) if isinstance(base, int) else by_name.get(base.hex())
                if below is None or left <= 0:
                    later.append((place, entry))
                    continue
                found = below[0], _applied(below[1], data, left)
            left -= len(found[1])
            by_place[place] = found
            digest = hashlib.sha1(b"%s %d\0" % (found[0], len(found[1])), usedforsecurity=False)
            digest.update(found[1])
            by_name[digest.hexdigest()] = found
        if len(later) == len(waiting):
            break
        waiting = later
    return by_name


def _applied(base: bytes, delta: bytes, left: int) -> bytes:
    """Return a delta applied to its base. Raise ValueError if it is damaged, or makes more than ``left`` bytes."""
    stream = io.BytesIO(delta[: 2 * _MOST_DIGITS])
    _base, size = _digits(stream), _digits(stream)
    if len(size) > _MOST_DIGITS or sum((digit & 0x7F) << 7 * at for at, digit in enumerate(size)) > left:
        raise ValueError("the pack is damaged")
    try:
        return b"".join(apply_delta(base, delta))
    except ApplyDeltaError:
        raise ValueError("the pack is damaged") from None


def _commit(data: bytes) -> PackedCommit:
    head, _empty, message = data.partition(b"\n\n")
    parents = [line[7:47].decode("ascii", "replace") for line in head.split(b"\n") if line.startswith(b"parent ")]
    first = message.lstrip(b"\n").partition(b"\n")[0].decode("utf-8", "replace")
    subject = "".join(char if char.isprintable() else "?" for char in first)
    return PackedCommit(tuple(parents), subject[:_SUBJECT])
