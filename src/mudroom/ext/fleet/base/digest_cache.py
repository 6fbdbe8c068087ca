"""Digests of a project's files by stat stamp, kept in the vault: an unchanged file is not read again.

An entry is written only if any later write is certain to give the file another ctime (``stage/stamp.py``), and believed
only if size, mtime, ctime, inode and device are the same. The file is a cache: a damaged one is an empty one.
"""

from __future__ import annotations

import os

import msgspec

from mudroom.core.tree.entry import Entry
from mudroom.stage.stamp import is_settled
from mudroom.stage.views.secret import write_beside

_FORMAT = 1
_Stamp = tuple[int, int, int, int, int]
_Rows = dict[bytes, tuple[_Stamp, bytes]]
_decoder = msgspec.msgpack.Decoder(tuple[int, dict[bytes, _Rows]])


def _stamp(entry: Entry) -> _Stamp:
    return entry.size, entry.mtime, entry.ctime, entry.inode, entry.device


class DigestCache:
    """One thread uses it. ``save`` forgets the digests of files that were not asked for since it was loaded."""

    def __init__(self, path: bytes, now: int) -> None:
        """``now``: the time at which the scan begins, in nanoseconds."""
        self._path, self._now = path, now
        self._known = _load(path)
        self._rows: dict[bytes, _Rows] = {}
        self._is_new = False

    def get(self, directory: bytes, name: bytes, entry: Entry) -> bytes | None:
        """Return the digest of the file's content; None if the file has to be read."""
        row = self._known.get(directory, {}).get(name)
        if row is None or row[0] != _stamp(entry):
            return None
        self._rows.setdefault(directory, {})[name] = row
        return row[1]

    def put(self, directory: bytes, name: bytes, entry: Entry, digest: bytes) -> None:
        """``entry``: before and after the file was read."""
        if is_settled(entry.ctime, self._now):
            self._rows.setdefault(directory, {})[name] = _stamp(entry), digest
            self._is_new = True

    def save(self) -> None:
        """Replace the cache in the vault, if it has changed. A full disk is no error: the files are read again."""
        if not self._is_new and _count(self._rows) == _count(self._known):
            return
        beside = b"%s.%s.new" % (self._path, os.urandom(4).hex().encode())
        try:
            write_beside(beside, msgspec.msgpack.encode((_FORMAT, self._rows)), self._path)
        except OSError:
            return


def _count(rows: dict[bytes, _Rows]) -> int:
    return sum(map(len, rows.values()))


def _load(path: bytes) -> dict[bytes, _Rows]:
    try:
        with open(path, "rb") as stream:
            written, rows = _decoder.decode(stream.read())
    except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
        return {}
    return rows if written == _FORMAT else {}
