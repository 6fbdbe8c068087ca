"""Packs: objects on their way to another machine, and the files in which a store keeps them.

    frame   u8 method (0: plain, 1: zlib) | payload
    payload u32 length, big-endian | rows: MessagePack [[is_node, digest, size, offset, length], …] | contents

A row is an object's part: ``length`` bytes from ``offset`` on, in an object with ``size`` bytes. An object larger than
``PART`` comes in several parts, in order, which may be in several packs. A part that the worker has said to have, in a
similar file, is its row alone, with the offset there (``delta.py``).

Rules of this file:
1. A frame is at most ``PACK`` bytes, before and after it is unpacked. Nothing is allocated by a number that arrived.
2. An object is stored only if its content has its digest, and only if it was asked for.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from mudroom.errors import MudroomError
from mudroom.ext.fleet.base.manifest import NODE_LIMIT, digest_of_content, digest_of_node
from mudroom.ext.fleet.wire.message import DIGEST

PACK = 8 << 20
"""Bytes in a pack."""
PART = 4 << 20
"""Bytes in an object's part."""
_ROW = 81
"""Bytes in a row, at most: digest 34, four integers 9 each, a boolean, the array's head."""
_HEAD = struct.Struct(">I")
_PLAIN, _ZLIB = 0, 1
_SMALL = 256 << 10
_SAMPLE = 32 << 10
_WORTH = 0.9


class RefusedPack(MudroomError):
    """The other end sent objects that are damaged, or that were not asked for."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"objects that were sent cannot be used: {reason}", "the link is closed; start it again")


class OtherContent(RefusedPack):
    """An object is not what its digest says."""

    def __init__(self, digest: bytes) -> None:
        super().__init__(f"an object is not {digest.hex()[:16]}")
        self.digest = digest


class PackRow(NamedTuple):
    is_node: bool
    digest: bytes
    size: int
    """The whole object's bytes."""
    offset: int
    length: int
    taken: int = -1
    """Offset in the similar file that has these bytes; -1: they are in the pack."""


class ObjectReader(Protocol):
    def size(self, digest: bytes) -> int:
        """Return an object's size in bytes. Raise KeyError if there is none."""

    def is_node(self, digest: bytes) -> bool: ...

    def read(self, digest: bytes, offset: int, length: int) -> bytes: ...


class ObjectWriter(Protocol):
    def put_all(self, objects: Iterable[tuple[bool, bytes, memoryview]]) -> None:
        """Store whole objects that were verified."""

    def put_part(self, row: PackRow, data: memoryview) -> bool:
        """Store a large object's part. Return whether the object is complete."""


_decoder = msgspec.msgpack.Decoder(list[PackRow])


def packs(digests: Iterable[bytes], objects: ObjectReader) -> Iterator[bytes]:
    """Yield packs of these objects, in order. Raise KeyError for an object that ``objects`` does not have, and what its
    ``read`` raises."""
    return packs_of_rows(
        (
            PackRow(objects.is_node(digest), digest, size, offset, min(size - offset, PART))
            for digest in digests
            for size in (objects.size(digest),)
            for offset in range(0, size or 1, PART)
        ),
        objects,
    )


def packs_of_rows(parts: Iterable[PackRow], objects: ObjectReader) -> Iterator[bytes]:
    """Yield packs of these parts, as ``packs`` does."""
    rows: list[PackRow] = []
    contents: list[bytes] = []
    total = 0
    for row in parts:
        length = row.length if row.taken < 0 else 0
        if rows and total + length + _ROW > PACK - 16:
            yield _frame(rows, contents)
            rows, contents, total = [], [], 0
        rows.append(row)
        if row.taken < 0:
            contents.append(objects.read(row.digest, row.offset, row.length))
        total += length + _ROW
    if rows:
        yield _frame(rows, contents)


def _frame(rows: list[PackRow], contents: list[bytes]) -> bytes:
    table = msgspec.msgpack.encode(rows)
    payload = b"".join((_HEAD.pack(len(table)), table, *contents))
    packed = _compress(payload)
    return bytes([_ZLIB]) + packed if packed is not None else bytes([_PLAIN]) + payload


def _compress(payload: bytes) -> bytes | None:
    """Return the payload compressed; None if that does not make it smaller. A sample from the middle, which is content
    and not rows, tells whether a large one is worth the time."""
    if len(payload) > _SMALL:
        middle = len(payload) // 2
        sample = payload[middle : middle + _SAMPLE]
        if len(zlib.compress(sample, 1)) > _WORTH * len(sample):
            return None
    packed = zlib.compress(payload, 6 if len(payload) <= _SMALL else 1)
    return packed if len(packed) < len(payload) else None


def parse(frame: bytes, similar: Container[bytes] = ()) -> Iterator[tuple[PackRow, memoryview]]:
    """Yield a pack's rows with their contents, which are not verified. Raise RefusedPack if it is no pack.

    ``similar``: the objects whose parts may be shorter, and may be taken from elsewhere."""
    payload = memoryview(_payload(frame))
    if len(payload) < _HEAD.size:
        raise RefusedPack("a pack is too short")
    (length,) = _HEAD.unpack_from(payload)
    at = _HEAD.size + length
    if at > len(payload):
        raise RefusedPack("a pack is too short")
    try:
        rows = _decoder.decode(payload[_HEAD.size : at])
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise RefusedPack(f"a pack cannot be read: {error}") from error
    for row in rows:
        if len(row.digest) != DIGEST or row.length < 0 or not 0 <= row.offset <= row.size - row.length:
            raise RefusedPack("a pack has an impossible row")
        if row.is_node and row.size > NODE_LIMIT:
            raise RefusedPack("a pack has an impossible row")
        if row.digest in similar:
            if row.is_node or not 0 < row.length <= PART:
                raise RefusedPack("a pack has an impossible row")
        elif row.length < min(row.size - row.offset, PART) or row.taken != -1:
            raise RefusedPack("a pack has an impossible row")
        length = row.length if row.taken == -1 else 0
        if at + length > len(payload):
            raise RefusedPack("a pack is too short")
        yield row, payload[at : at + length]
        at += length
    if at != len(payload):
        raise RefusedPack("a pack is too long")


def _payload(frame: bytes) -> bytes:
    if not 1 <= len(frame) <= PACK:
        raise RefusedPack(f"a pack has {len(frame):,} bytes")
    method = frame[0]
    if method == _PLAIN:
        return frame[1:]
    if method != _ZLIB:
        raise RefusedPack(f"a pack is packed by method {method}")
    unpacker = zlib.decompressobj()
    try:
        payload = unpacker.decompress(memoryview(frame)[1:], PACK + 1)
    except zlib.error as error:
        raise RefusedPack(f"a pack is damaged: {error}") from error
    if len(payload) > PACK or not unpacker.eof or unpacker.unused_data:
        raise RefusedPack(f"a pack is not one stream of at most {PACK:,} bytes")
    return payload


def unpack(
    frame: bytes,
    store: ObjectWriter,
    wanted: Container[bytes],
    similar: Mapping[bytes, Callable[[int, int], bytes]] = MappingProxyType({}),
) -> list[bytes]:
    """Store a pack's objects. Return the digests of those that are complete. ``similar``: for some objects, a function
    that returns so many bytes of a similar file from an offset on, or fewer.

    Raise RefusedPack if one was not asked for or does not have its digest; the objects before it in the pack are not
    stored either. Raise as the store does if there is no room.
    """
    whole: list[tuple[bool, bytes, memoryview]] = []
    parts: list[tuple[PackRow, memoryview]] = []
    for row, data in parse(frame, similar):
        if row.digest not in wanted:
            raise RefusedPack("an object was not asked for")
        if row.length != row.size or row.digest in similar:
            parts.append((row, data))
        elif not is_content_of(data, row.digest, is_node=row.is_node):
            raise OtherContent(row.digest)
        else:
            whole.append((row.is_node, row.digest, data))
    if whole:
        store.put_all(whole)
    complete = [digest for _is_node, digest, _data in whole]
    for row, data in parts:
        if row.taken != -1:
            data = memoryview(similar[row.digest](row.taken, row.length).ljust(row.length, b"\0"))
        if store.put_part(row, data):
            complete.append(row.digest)
    return complete


def is_content_of(data: bytes | memoryview, digest: bytes, *, is_node: bool) -> bool:
    return (digest_of_node(data) if is_node else digest_of_content(data)) == digest
