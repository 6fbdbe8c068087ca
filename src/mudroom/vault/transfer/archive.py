"""Reader of an archive that may be hostile, sequentially, once.

``tarfile`` only parses headers here; it never extracts, and its sizes are not trusted. For any input, the result is the
next entry or ``RefusedArchive``.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.typing import IO, Any, cast
from mudroom.vault.transfer.pack import ENTRY_LIMIT, HEADER_LIMIT

BLOCK = HEADER_LIMIT
"""Maximum bytes of one header, and of one read."""


class RefusedArchive(MudroomError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the archive cannot be imported: {reason}", "no part of it was kept")


class _Bounded:
    """A stream that is only read forward, with limits for each read and in total: ``tarfile`` trusts sizes."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream, self._limit, self._at = stream, limit, 0

    def read(self, size: int) -> bytes:
        if not 0 <= size <= BLOCK:
            raise RefusedArchive(f"it has a header of {size} bytes")
        data: bytes = self._stream.read(size)
        self._at += len(data)
        if self._at > self._limit:
            raise RefusedArchive(f"it holds more than {self._limit / 1e6:,.0f} MB")
        return data

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        if position < self._at:
            raise RefusedArchive("it has an invalid size")
        while self._at < position and self.read(min(position - self._at, BLOCK)):
            pass


class ArchiveReader:
    """Use ``for info in archive: …``. Read the content of a file while it is the current entry."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        """``limit``: bytes that the whole archive may unpack to."""
        start = stream.read(2)
        stream.seek(0)
        unpacked: Any = gzip.GzipFile(fileobj=stream) if start == b"\x1f\x8b" else stream
        self._bounded = _Bounded(unpacked, limit)
        with refusing():
            self._tar: Any = tarfile.TarFile(
                fileobj=cast("Any", self._bounded), mode="r", encoding="utf-8", errors="surrogateescape"
            )

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        for _number in range(ENTRY_LIMIT):
            with refusing():
                info: tarfile.TarInfo | None = self._tar.next()
                self._tar.members.clear()  # otherwise it would keep all of them
            if info is None:
                return
            yield info
        raise RefusedArchive(f"it has more than {ENTRY_LIMIT:,} entries")

    def read(self, info: tarfile.TarInfo, limit: int) -> bytes:
        """Return the content of a file. Raise RefusedArchive if it is not a file, or larger than ``limit`` bytes."""
        if info.size > limit:
            raise RefusedArchive(f"{show(name_of(info))} has {info.size} bytes")
        return b"".join(self.blocks(info))

    def blocks(self, info: tarfile.TarInfo) -> Iterator[bytes]:
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.sparse is not None or info.size < 0:
            raise RefusedArchive(f"{show(name_of(info))} is not a plain file")
        left = info.size
        with refusing():
            self._bounded.seek(info.offset_data)
        while left:
            with refusing():
                block = self._bounded.read(min(left, BLOCK))
            if not block:
                raise RefusedArchive("it is truncated")
            left -= len(block)
            yield block


@contextmanager
def refusing() -> Iterator[None]:
    """Turn every error of a parser into RefusedArchive. Errors of the disk pass unchanged."""
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, ArithmeticError) as error:
        raise RefusedArchive(f"it is damaged, or was not written by mudroom: {error}") from error
    except (LookupError, TypeError, RecursionError) as error:  # tarfile, on nested or incomplete headers
        raise RefusedArchive("it is damaged, or was not written by mudroom") from error


def name_of(info: tarfile.TarInfo) -> bytes:
    return info.name.encode("utf-8", "surrogateescape")
