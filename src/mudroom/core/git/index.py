"""git's index: parse, compare, encode. Pure; format: gitformat-index(5), versions 2 to 4.

An index is read to learn which files are tracked. It is written for two reasons only: to flag masked files in a fork's
own index, and to move entries in the user's index when the checked-out branch moves. Optional extensions are caches and
are dropped when an index is written; an index with an extension that must be understood (a split or sparse index) is
never written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from mudroom.typing import NamedTuple

_HEADER = struct.Struct(">4sII")
_STAT_LENGTH = 40  # ctime, mtime (2 words each), device, inode, mode, uid, gid, size
_MODE = slice(24, 28)
_NO_STAT = b"\0" * _STAT_LENGTH
_STAGE_SHIFT, _NAME_LENGTH, _EXTENDED, _ASSUME_VALID = 12, 0xFFF, 0x4000, 0x8000
_SKIP_WORKTREE, _INTENT_TO_ADD = 0x4000, 0x2000
_ALIGNMENT = 8


class TreeItem(NamedTuple):
    """A file in a tree: mode as a number (0o100644) and binary object id."""

    mode: int
    id: bytes


class IndexEntry(NamedTuple):
    path: bytes
    item: TreeItem
    stage: int = 0
    """0, or 1 to 3 for a file in conflict."""
    skip_worktree: bool = False
    """git takes the file in the work tree for unchanged: git-update-index(1)."""
    intent_to_add: bool = False
    assume_valid: bool = False
    stat: bytes = _NO_STAT
    """40 bytes of stat data, in which the mode is not used. Zeros: git compares the content."""


class Index(NamedTuple):
    entries: tuple[IndexEntry, ...]
    """In git's order: by path, then by stage."""
    required: frozenset[bytes] = frozenset()
    """Extensions that a reader must understand: ``link`` (split index), ``sdir`` (sparse index)."""

    @property
    def is_plain(self) -> bool:
        """Whether mudroom may rewrite this index: it is complete in itself and holds no file in conflict."""
        return not self.required and not any(entry.stage for entry in self.entries)


def parse_index(data: bytes, id_length: int = 20) -> Index:
    """Return an index's entries. Raise ValueError if it is damaged. ``id_length``: bytes, 20 or 32."""
    try:
        return _parse(memoryview(data), id_length)
    except (struct.error, IndexError) as error:
        raise ValueError("the index ends in the middle") from error


def _parse(data: memoryview, id_length: int) -> Index:
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("the index has an unknown format")
    end_of_all = len(data) - id_length
    checksum = bytes(data[max(end_of_all, 0) :])
    if end_of_all < _HEADER.size or (any(checksum) and checksum != _digest(data[:end_of_all], id_length)):
        raise ValueError("the index does not have its checksum")  # zeros: index.skipHash in git-config(1)
    fixed = struct.Struct(f">{_STAT_LENGTH}s{id_length}sH")
    entries: list[IndexEntry] = []
    position, path, whole = _HEADER.size, b"", bytes(data)
    for _number in range(count):
        start = position
        stat, raw_id, flags = fixed.unpack_from(data, position)
        position += fixed.size
        extended = 0
        if flags & _EXTENDED:
            (extended,) = struct.unpack_from(">H", data, position)
            position += 2
        if version == 4:
            strip, position = _variable_length(data, position)
            if strip > len(path):
                raise ValueError("the index has a name that removes more than there is")
            end = _end_of_name(whole, position)
            path = path[: len(path) - strip] + whole[position:end]
            position = end + 1
        else:
            end = _end_of_name(whole, position)
            path = whole[position:end]
            position = start + (end - start + _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT
        item = TreeItem(int.from_bytes(stat[_MODE]), raw_id)
        entries.append(
            IndexEntry(
                path,
                item,
                flags >> _STAGE_SHIFT & 3,
                bool(extended & _SKIP_WORKTREE),
                bool(extended & _INTENT_TO_ADD),
                bool(flags & _ASSUME_VALID),
                stat,
            )
        )
    if position > end_of_all:
        raise ValueError("the index ends in the middle")
    return Index(tuple(entries), _required_extensions(data, position, end_of_all))


def _end_of_name(data: bytes, start: int) -> int:
    end = data.find(b"\0", start)
    if end < 0:
        raise ValueError("the index ends in the middle")
    return end


def _digest(data: bytes | memoryview, id_length: int) -> bytes:
    if id_length == 20:
        try:
            from _sha1 import sha1  # type: ignore[import-not-found]  # hashlib imports OpenSSL, which takes 2 ms
        except ImportError:
            from hashlib import sha1
        return bytes(sha1(data, usedforsecurity=False).digest())
    from hashlib import sha256

    return sha256(data, usedforsecurity=False).digest()


def _variable_length(data: memoryview, position: int) -> tuple[int, int]:
    """Return a number and the position after it, in the OFS_DELTA encoding: gitformat-pack(5)."""
    byte = data[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        byte = data[position]
        value = (value + 1) << 7 | byte & 0x7F
    return value, position + 1


def _required_extensions(data: memoryview, position: int, end: int) -> frozenset[bytes]:
    required = set()
    while position + 8 <= end:
        signature, length = struct.unpack_from(">4sI", data, position)
        if not b"A" <= signature[:1] <= b"Z":
            required.add(signature)
        position += 8 + length
    return frozenset(required)


def encode_index(entries: Iterable[IndexEntry], id_length: int = 20) -> bytes:
    """Return an index with these entries, without extensions, in version 2, or 3 if a flag needs it."""
    ordered = sorted(entries, key=lambda entry: (entry.path, entry.stage))
    extended = any(entry.skip_worktree or entry.intent_to_add for entry in ordered)
    parts = [_HEADER.pack(b"DIRC", 3 if extended else 2, len(ordered))]
    for entry in ordered:
        flags = entry.stage << _STAGE_SHIFT | min(len(entry.path), _NAME_LENGTH)
        flags |= _ASSUME_VALID * entry.assume_valid
        more = _SKIP_WORKTREE * entry.skip_worktree | _INTENT_TO_ADD * entry.intent_to_add
        stat = entry.stat[: _MODE.start] + entry.item.mode.to_bytes(4) + entry.stat[_MODE.stop :]
        record = stat + entry.item.id + (flags | _EXTENDED * bool(more)).to_bytes(2)
        record += (more.to_bytes(2) if more else b"") + entry.path
        parts.append(record + b"\0" * (_ALIGNMENT - len(record) % _ALIGNMENT))
    data = b"".join(parts)
    return data + _digest(data, id_length)


def is_same_staging(first: bytes, second: bytes, id_length: int = 20) -> bool:
    """Return whether two indexes stage the same files. Stat data, caches and masked files' flags do not count.

    Return False if either cannot be parsed.
    """
    if first == second or _differ_in_stat_data(first, second, id_length):
        return True
    try:
        one, other = parse_index(first, id_length), parse_index(second, id_length)
    except ValueError:
        return False
    return one.required == other.required and _staging(one) == _staging(other)


def _differ_in_stat_data(first: bytes, second: bytes, id_length: int) -> bool:
    """Return whether two indexes in version 2 or 3 are equal except for stat data and optional extensions: a fast
    answer for an index that was only refreshed. False: unknown."""
    if first[: _HEADER.size] != second[: _HEADER.size] or first[:8] not in (b"DIRC\0\0\0\2", b"DIRC\0\0\0\3"):
        return False
    fixed = _STAT_LENGTH + id_length + 2
    position = _HEADER.size
    for _number in range(int.from_bytes(first[8:12])):
        end = first.find(b"\0", position + fixed)
        identity = position + _STAT_LENGTH
        if first[position + fixed - 2] & _EXTENDED >> 8:
            return False  # more flags come before the name
        if end < 0 or first[identity : end + 1] != second[identity : end + 1]:
            return False
        if (
            first[position + _MODE.start : position + _MODE.stop]
            != second[position + _MODE.start : position + _MODE.stop]
        ):
            return False
        position += (end - position + _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT
    sides = (_required_extensions(memoryview(data), position, len(data) - id_length) for data in (first, second))
    return not any(sides)


def _staging(index: Index) -> list[tuple[bytes, TreeItem, int, bool]]:
    return [(entry.path, entry.item, entry.stage, entry.intent_to_add) for entry in index.entries]


def with_skip_worktree(entries: Iterable[IndexEntry], paths: Iterable[bytes]) -> list[IndexEntry]:
    """Return the entries, with ``paths`` marked so that git neither reads nor writes them in the work tree. Files in
    conflict stay as they are."""
    marked = frozenset(paths)
    return [
        entry._replace(skip_worktree=True) if entry.path in marked and not entry.stage else entry for entry in entries
    ]
