"""Bounded reads of files that an agent may have written: regular files only, and no more from a stream than
requested."""

from __future__ import annotations

import os
import stat
import zlib

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.source import Source, is_absence

OBJECT_LIMIT = 256 << 20
"""Largest object in bytes. The largest that a public forge accepts is 100 MB."""
READ_LIMIT = 16 << 30
"""Maximum bytes read from a fork's repository, unpacked."""
_CHUNK = 1 << 16
_HINT = "git fsck in the fork shows details"


def refusal(reason: str, hint: str = _HINT) -> UsageError:
    return UsageError(f"the fork's repository is not read: {reason}", hint)


class Allowance:
    """Bytes that may still be read: a few bytes in a file can unpack to any size."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = self.left = READ_LIMIT if limit is None else limit

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise refusal(f"it unpacks to more than {self._limit >> 30} GiB", "bring it with fewer or smaller objects")


class UnpackedObject:
    """A zlib stream in a file, unpacked only as far as requested."""

    def __init__(self, descriptor: int, offset: int, allowance: Allowance) -> None:
        self._descriptor, self._offset, self._allowance = descriptor, offset, allowance
        self._stream = zlib.decompressobj()

    def read(self, size: int, start: bytes = b"") -> bytes:
        """Return ``start`` and the next ``size`` bytes, or fewer at the end. Raise ValueError if the stream is
        damaged."""
        parts, missing = [start], size
        try:
            while missing and not self._stream.eof:
                part = self._stream.decompress(self._stream.unconsumed_tail, missing)
                if not part and not self._stream.eof:
                    part = self._stream.decompress(self._more(), missing)
                missing -= len(part)
                parts.append(part)
        except zlib.error:
            raise ValueError("is damaged") from None
        self._allowance.spend(size - missing)
        return b"".join(parts)

    def _more(self) -> bytes:
        chunk = disk.pread(self._descriptor, _CHUNK, self._offset)
        if not chunk:
            raise ValueError("ends in the middle")
        self._offset += len(chunk)
        self._allowance.spend(len(chunk))
        return chunk

    def last(self, size: int, start: bytes = b"") -> bytes:
        """Return the stream's rest. Raise ValueError unless it has ``size`` bytes, including ``start``."""
        data = self.read(size - len(start), start)
        if len(data) != size or self.read(1):
            raise ValueError("is not as long as it says")
        return data

    @property
    def is_all(self) -> bool:
        """Whether the file ends with the stream."""
        return not self._stream.unused_data and not disk.pread(self._descriptor, 1, self._offset)


def open_regular(view: Source, path: bytes) -> int | None:
    """Return a descriptor for a regular file in a fork, or None if it is absent. Raise UsageError for any other
    file."""
    try:
        descriptor = view.open(path)
    except OSError as error:
        _require_file(view, path)
        if is_absence(error):
            return None
        raise refusal(f"{show(path)}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        _require_file(view, path)
        raise refusal(f"{show(path)} is not a file")
    return descriptor


def _require_file(view: Source, path: bytes) -> None:
    entry = view.look(path)
    if entry is not None and entry.kind != "file":
        raise refusal(f"{show(path)} is a {entry.kind}")


def read_small(view: Source, path: bytes, limit: int) -> bytes | None:
    """Return a file's content, or None if it is absent. Raise UsageError above ``limit`` bytes."""
    descriptor = open_regular(view, path)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise refusal(f"{show(path)} has more than {limit:,} bytes")
    return data


def check_size(size: int) -> None:
    if size > OBJECT_LIMIT:
        raise ValueError(f"has {size:,} bytes, more than the {OBJECT_LIMIT >> 20} MiB that are read")
