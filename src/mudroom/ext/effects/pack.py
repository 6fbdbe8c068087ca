"""The commits in a held push's pack, and whether its content may hold a secret.

Rules of this file: the pack is untrusted, so what is unpacked is bounded, and an object counts by the hash of its
content. A delta against an object that the pack does not have stays unread, but for the text that it adds.
gitformat-pack(5).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping

from mudroom.stage import disk
from mudroom.typing import NamedTuple

MOST_OBJECTS, MOST_BYTES = 200_000, 256 << 20
_KINDS = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_OFFSET, _NAMED = 6, 7
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


class _Entry(NamedTuple):
    kind: int
    data: bytes
    base: int | str


def view_pack(descriptor: int, at: int, end: int, is_secret: Callable[[bytes], bool]) -> PackView:
    """Return what a pack has between two offsets of a file. Raise ValueError if it is damaged."""
    count = int.from_bytes(disk.pread(descriptor, 4, at + 8), "big")
    position, left = at + 12, MOST_BYTES
    entries: dict[int, _Entry] = {}
    for _object in range(min(count, MOST_OBJECTS)):
        start = position
        entry, position = _read(descriptor, position, end, left)
        entries[start] = entry
        left -= len(entry.data) + 100
        if left <= 0:
            break
    objects, has_secret = _resolved(entries), False
    commits: dict[str, PackedCommit] = {}
    tags: dict[str, str] = {}
    for name, (kind, data) in objects.items():
        if kind == b"commit":
            commits[name] = _commit(data)
        elif kind == b"tag" and data.startswith(b"object "):
            tags[name] = data[7:47].decode("ascii", "replace")
        has_secret = has_secret or (kind != b"tree" and is_secret(data))
    unread = (entry.data for entry in entries.values() if entry.kind in (_OFFSET, _NAMED))
    has_secret = has_secret or any(map(is_secret, unread))
    return PackView(commits, tags, has_secret, len(entries) == count)


def _read(descriptor: int, at: int, end: int, left: int) -> tuple[_Entry, int]:
    head = disk.pread(descriptor, 64, at)
    if not head:
        raise ValueError("the pack is cut off")
    kind, size, shift, here = head[0] >> 4 & 7, head[0] & 15, 4, 0
    while head[here] & 0x80:
        here += 1
        if here > 9:
            raise ValueError("the pack is damaged")
        size |= (head[here] & 0x7F) << shift
        shift += 7
    here += 1
    base: int | str = 0
    if kind == _NAMED:
        base, here = head[here : here + 20].hex(), here + 20
    elif kind == _OFFSET:
        back = head[here] & 0x7F
        while head[here] & 0x80:
            here += 1
            if here > 30:
                raise ValueError("the pack is damaged")
            back = (back + 1) << 7 | head[here] & 0x7F
        base, here = at - back, here + 1
    elif kind not in _KINDS:
        raise ValueError("the pack is damaged")
    if size > left:
        return _Entry(0, b"\0" * left, 0), end
    stream, data, position = zlib.decompressobj(), b"", at + here
    try:
        while not stream.eof:
            block = disk.pread(descriptor, min(1 << 16, end - position), position) if position < end else b""
            if not block:
                raise ValueError("the pack is cut off")
            data += stream.decompress(block, size + 1 - len(data))
            if len(data) > size or stream.unconsumed_tail:
                raise ValueError("the pack is damaged")
            position += len(block) - len(stream.unused_data)
    except zlib.error:
        raise ValueError("the pack is damaged") from None
    if len(data) != size:
        raise ValueError("the pack is damaged")
    return _Entry(kind, data, base), position


def _resolved(entries: Mapping[int, _Entry]) -> dict[str, tuple[bytes, bytes]]:
    """Return the objects by name. Deltas whose base is not in the pack are left out."""
    by_place: dict[int, tuple[bytes, bytes]] = {}
    by_name: dict[str, tuple[bytes, bytes]] = {}
    waiting = list(entries.items())
    left = MOST_BYTES
    while waiting:
        later = []
        for place, entry in waiting:
            if entry.kind in _KINDS:
                found = _KINDS[entry.kind], entry.data
            else:
                base = by_place.get(entry.base) if isinstance(entry.base, int) else by_name.get(entry.base)
                if base is None or left <= 0:
                    later.append((place, entry))
                    continue
                found = base[0], _applied(base[1], entry.data)
            left -= len(found[1])
            by_place[place] = found
            digest = hashlib.sha1(b"%s %d\0" % (found[0], len(found[1])), usedforsecurity=False)
            digest.update(found[1])
            by_name[digest.hexdigest()] = found
        if len(later) == len(waiting):
            break
        waiting = later
    return by_name


def _applied(base: bytes, delta: bytes) -> bytes:
    """Return a delta applied to its base. Raise ValueError if it is damaged."""
    try:
        base_size, at = _number(delta, 0)
        size, at = _number(delta, at)
        parts: list[bytes] = []
        made = 0
        while at < len(delta):
            code = delta[at]
            at += 1
            if code & 0x80:
                offset = length = 0
                for bit in range(7):
                    if code >> bit & 1:
                        if bit < 4:
                            offset |= delta[at] << 8 * bit
                        else:
                            length |= delta[at] << 8 * (bit - 4)
                        at += 1
                part = base[offset : offset + (length or 0x10000)]
            else:
                part = delta[at : at + code]
                at += code
            made += len(part)
            if made > size or not part:
                raise ValueError("the pack is damaged")
            parts.append(part)
    except IndexError:
        raise ValueError("the pack is damaged") from None
    if base_size != len(base) or made != size or size > MOST_BYTES:
        raise ValueError("the pack is damaged")
    return b"".join(parts)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
        if shift > 63:
            raise ValueError("the pack is damaged")


def _commit(data: bytes) -> PackedCommit:
    head, _empty, message = data.partition(b"\n\n")
    parents = [line[7:47].decode("ascii", "replace") for line in head.split(b"\n") if line.startswith(b"parent ")]
    first = message.lstrip(b"\n").partition(b"\n")[0].decode("utf-8", "replace")
    subject = "".join(char if char.isprintable() else "?" for char in first)
    return PackedCommit(tuple(parents), subject[:_SUBJECT])
