"""Read an archive that may be hostile, sequentially and once: the stream need not be able to seek.

``tarfile`` only parses headers here; it never extracts, and its sizes are not trusted. For any input, the result is the
next entry or ``RefusedArchive``. The bytes read are bounded twice: as they arrive, and unpacked.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from _blake2 import blake2b
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.api import MudroomError, show
from mudroom.ext.transfer.vault.pack import ENTRY_LIMIT, HEADER_LIMIT
from mudroom.typing import IO, Any, cast

BLOCK = HEADER_LIMIT
"""Maximum bytes in a header, and in a read."""
_PADDING = 1 << 20
"""Maximum bytes of zeros after an archive's end. tar(1) fills up a record of 10 KiB (``--blocking-factor``)."""
_GZIP = b"\x1f\x8b"


class RefusedArchive(MudroomError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the archive cannot be imported: {reason}", "no part of it was kept")


class _Input:
    """The stream as it arrives: a file, a pipe or a socket; a read may return fewer bytes than asked for. Counted and
    hashed."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream, self._limit, self._ahead = stream, limit, b""
        self._hasher = blake2b(digest_size=32)
        self.size = 0

    def start(self, count: int) -> bytes:
        """Return the first bytes, fewer if the stream is shorter. ``read`` returns them again."""
        while len(self._ahead) < count and (data := self._read(count - len(self._ahead))):
            self._ahead += data
        return self._ahead

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end: ``gzip`` takes a short read for the end."""
        parts, self._ahead = [self._ahead[:size]], self._ahead[size:]
        left = size - len(parts[0])
        while left > 0 and (data := self._read(min(left, BLOCK))):
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        data: bytes | None = self._stream.read(size)
        if data is None:  # io.RawIOBase.read
            raise RefusedArchive("its stream does not wait for data: it is not blocking")
        self.size += len(data)
        if self.size > self._limit:
            raise RefusedArchive(f"it holds more than {self._limit / 1e6:,.0f} MB")
        self._hasher.update(data)
        return data

    def digest(self) -> bytes:
        return self._hasher.digest()


class _Bounded:
    """A stream that is only read forward, with a limit for each read and a total limit: ``tarfile`` trusts sizes."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream, self._limit, self._at = stream, limit, 0

    def read(self, size: int) -> bytes:
        if not 0 <= size <= BLOCK:
            raise RefusedArchive(f"it has a header of {size} bytes")
        parts: list[bytes] = []
        while size and (data := self._stream.read(size)):
            parts.append(data)
            size -= len(data)
            self._at += len(data)
            if self._at > self._limit:
                raise RefusedArchive(f"it holds more than {self._limit / 1e6:,.0f} MB")
        return b"".join(parts)

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        if position < self._at:
            raise RefusedArchive("it has an invalid size")
        while self._at < position and self.read(min(position - self._at, BLOCK)):
            pass


class ArchiveReader:
    """Use ``for info in archive: …``. Read a file's content while it is the current entry."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        """``limit``: bytes that the whole archive may have, both as it arrives and unpacked."""
        self._input = _Input(stream, limit + _PADDING)
        is_packed = self._input.start(len(_GZIP)) == _GZIP
        unpacked: Any = gzip.GzipFile(fileobj=cast("Any", self._input), mode="rb") if is_packed else self._input
        self._bounded = _Bounded(unpacked, limit)
        with refusing():
            self._tar: Any = tarfile.TarFile(
                fileobj=cast("Any", self._bounded), mode="r", encoding="utf-8", errors="surrogateescape"
            )

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        for _number in range(ENTRY_LIMIT):
            with refusing():
                info: tarfile.TarInfo | None = self._tar.next()
                self._tar.members.clear()  # otherwise tarfile would keep every member
            if info is None:
                return
            yield info
        raise RefusedArchive(f"it has more than {ENTRY_LIMIT:,} entries")

    def finish(self) -> tuple[int, bytes]:
        """Read to the end of the stream, so that its writer can end. Return the archive's size in bytes and its
        BLAKE2b-256 digest. Raise RefusedArchive if any data except padding follows."""
        left = _PADDING
        with refusing():
            while data := self._bounded.read(min(BLOCK, left + 1)):
                left -= len(data)
                if left < 0 or data.strip(b"\0"):
                    raise RefusedArchive("it has data after its end")
        return self._input.size, self._input.digest()

    def read(self, info: tarfile.TarInfo, limit: int) -> bytes:
        """Return a file's content. Raise RefusedArchive if it is not a file, or larger than ``limit`` bytes."""
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
    """Turn every parser error into RefusedArchive. Disk errors pass unchanged."""
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, ArithmeticError) as error:
        raise RefusedArchive(f"it is damaged, or was not written by mudroom: {error}") from error
    except (LookupError, TypeError, RecursionError) as error:  # tarfile, on nested or incomplete headers
        raise RefusedArchive("it is damaged, or was not written by mudroom") from error


def name_of(info: tarfile.TarInfo) -> bytes:
    return info.name.encode("utf-8", "surrogateescape")
