"""The parts of a large file that another version of it has: found by the digests of that version's blocks. Pure.

As rsync does (Tridgell, Mackerras, "The rsync algorithm", 1996), but a block is looked for at two places only: where it
was, and as far from the file's end as it was. That finds every block outside of one edit of any length, and blocks that
were changed in place; a rolling checksum in Python would cost more than the bytes.
"""

from __future__ import annotations

from _blake2 import blake2b
from collections.abc import Callable, Iterator

from mudroom.ext.fleet.base.pack import PART, ObjectReader, PackRow, packs, packs_of_rows
from mudroom.ext.fleet.wire.frame import LinkError
from mudroom.ext.fleet.wire.message import Similar, Want
from mudroom.typing import NamedTuple

LEAST = 1 << 20
"""Bytes in a file that is worth it."""
MOST_BLOCKS = 1 << 14
_BLOCK = 1 << 16
_DIGEST = 16

Read = Callable[[int, int], bytes]
"""Return so many bytes from an offset on."""


class FilePiece(NamedTuple):
    offset: int
    length: int
    taken: int
    """Offset in the other version; -1: it has no such bytes."""


def described(digest: bytes, size: int, read: Read) -> Similar:
    """Return the blocks of a file of ``size`` bytes that may be like the file with this digest."""
    block = _BLOCK
    while size > block * MOST_BLOCKS:
        block *= 2
    blocks = b"".join(_digest(read(start, min(block, size - start))) for start in range(0, size, block))
    return Similar(digest, size, block, blocks)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()


def pieces(size: int, read: Read, similar: Similar) -> Iterator[FilePiece]:
    """Yield a file's pieces in order, at most ``PART`` bytes each. Raise LinkError for impossible blocks."""
    block, old = similar.block, similar.size
    count = -(-old // block) if 0 < block <= PART and old >= 0 else -1
    if len(similar.blocks) != count * _DIGEST or count > MOST_BLOCKS:
        raise LinkError("described a file by blocks that it cannot have")
    last, at = FilePiece(0, 0, -1), 0
    while at < size:
        piece = _matched(size, read, similar, at)
        follows = piece.taken == (last.taken + last.length if last.taken >= 0 else -1)
        if last.length and not (follows and last.length + piece.length <= PART):
            yield last
            last = piece
        else:
            last = FilePiece(last.offset, last.length + piece.length, last.taken) if last.length else piece
        at += piece.length
    if last.length:
        yield last


def packs_for(want: Want, objects: ObjectReader) -> Iterator[bytes]:
    """Yield the packs that answer a request. Raise as ``packs`` and ``pieces`` do."""
    yield from packs(dict.fromkeys((*want.nodes, *want.files)), objects)
    for similar in want.similar:
        yield from packs_of_rows(_rows(similar, objects), objects)


def _rows(similar: Similar, objects: ObjectReader) -> Iterator[PackRow]:
    digest = similar.digest
    size = objects.size(digest)
    for piece in pieces(size, lambda offset, length: objects.read(digest, offset, length), similar):
        yield PackRow(False, digest, size, piece.offset, piece.length, piece.taken)


def _matched(size: int, read: Read, similar: Similar, at: int) -> FilePiece:
    """Return the block that both have here, or the bytes up to where the next could begin."""
    block, following = similar.block, size
    for shift in {0, size - similar.size}:
        start = at - shift
        if start % block:
            following = min(following, at + block - start % block)
            continue
        following = min(following, at + block)
        length = min(block, similar.size - start)
        if start >= 0 and 0 < length <= size - at:
            number = start // block
            if _digest(read(at, length)) == similar.blocks[number * _DIGEST : (number + 1) * _DIGEST]:
                return FilePiece(at, length, start)
    return FilePiece(at, following - at, -1)
