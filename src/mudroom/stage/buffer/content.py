"""File contents in a write buffer: in memory while they are small and few, otherwise spilled to a directory.

This module does not need Linux. Files are opened by ``stage/disk.py``: on Windows, a file opened any other way cannot
be removed before it is closed.
"""

from __future__ import annotations

import io
import itertools
import os
from _thread import RLock  # threading.RLock, without the rest of that module on the fast path

from mudroom.core.system.closing import ClosedOnError
from mudroom.core.system.write_all import write_all
from mudroom.stage import disk
from mudroom.typing import BinaryIO

PER_FILE, TOTAL = 4 << 20, 64 << 20
"""Bytes: the largest content held in memory, and the total held in memory."""
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC
_READ = os.O_RDONLY | disk.O_CLOEXEC | disk.O_NOFOLLOW
_CHUNK = 1 << 20


class BufferedContent:
    """One file's bytes, in memory or spilled."""

    __slots__ = ("data", "path", "size")

    def __init__(self, size: int, data: bytes | None = None, path: bytes = b"") -> None:
        self.size, self.data, self.path = size, data, path


class Contents:
    """All contents in a buffer. At most ``total`` bytes are in memory, and no single content larger than ``per_file``.

    The rest is spilled to files in ``directory``, which is created when needed; after a crash the caller removes it.
    The least recently used contents are spilled first. Raises OSError as the disk does; no content is lost then.
    """

    def __init__(self, directory: bytes, per_file: int, total: int) -> None:
        self._directory, self.per_file, self.total = directory, min(per_file, total), total
        self.lock = RLock()
        self.used = 0
        """Bytes in memory."""
        self._recent: dict[BufferedContent, None] = {}
        self._numbers = itertools.count(1)

    def hold(self, data: bytes) -> BufferedContent:
        if len(data) > self.per_file or not self.make_room(len(data)):
            return BufferedContent(len(data), path=self._spill(data))
        content = BufferedContent(len(data), data)
        self._recent[content] = None
        self.used += len(data)
        return content

    def take(self, descriptor: int) -> BufferedContent:
        """Read an open file from its position to its end, and close it."""
        spool = Spool(self)
        try:
            while data := os.read(descriptor, _CHUNK):
                spool.write(memoryview(data))
            return spool.finish()
        except BaseException:
            spool.abandon()
            raise
        finally:
            os.close(descriptor)

    def make_room(self, size: int) -> bool:
        """Spill contents until ``size`` more bytes fit into memory. Return whether they fit."""
        while self.used + size > self.total and self._recent:
            oldest = next(iter(self._recent))
            assert oldest.data is not None
            oldest.path = self._spill(oldest.data)
            self._leave(oldest)
        return self.used + size <= self.total

    def _leave(self, content: BufferedContent) -> None:
        del self._recent[content]
        self.used -= content.size
        content.data = None

    def read(self, content: BufferedContent) -> bytes:
        data = content.data
        if data is None:
            return read_whole(self.open(content))
        del self._recent[content]
        self._recent[content] = None
        return data

    def readable(self, content: BufferedContent) -> BinaryIO:
        return io.BytesIO(self.read(content)) if content.data is not None else os.fdopen(self.open(content), "rb")

    def open(self, content: BufferedContent) -> int:
        """Return a descriptor for reading, at the beginning. It stays valid when the content is released."""
        if content.data is None:
            return disk.open_path(content.path, _READ)
        descriptor = os.memfd_create("mudroom") if hasattr(os, "memfd_create") else self._nameless()
        with ClosedOnError(descriptor):
            write_all(descriptor, content.data)
            os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def release(self, content: BufferedContent) -> None:
        if content.data is not None:
            self._leave(content)
        else:
            disk.unlink(None, content.path)

    def new_file(self) -> tuple[int, bytes]:
        while True:
            path = self._directory + b"/%d" % next(self._numbers)
            try:
                return disk.open_path(path, _NEW, 0o600), path
            except FileNotFoundError:
                os.makedirs(self._directory, 0o700)
            except FileExistsError:
                continue  # belongs to another buffer, or to a crashed one

    def _nameless(self) -> int:
        descriptor, path = self.new_file()
        disk.unlink(None, path)
        return descriptor

    def _spill(self, data: bytes) -> bytes:
        descriptor, path = self.new_file()
        try:
            write_all(descriptor, data)
        except BaseException:
            disk.unlink(None, path)
            raise
        finally:
            os.close(descriptor)
        return path


class Spool:
    """Growing content: in memory while it is small and fits, then in its own file.

    Owner: its draft, used by one thread.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._stream: io.BytesIO | io.FileIO = io.BytesIO()
        self._counted = 0
        self._path = b""

    def write(self, data: memoryview, /) -> int | None:
        if not self._path:
            with self._contents.lock:
                self._grow(self._stream.tell() + len(data))
        return self._stream.write(data)

    def _grow(self, end: int) -> None:
        more = end - self._counted
        if end > self._contents.per_file or (more > 0 and not self._contents.make_room(more)):
            self._roll_over()
        elif more > 0:
            self._contents.used += more
            self._counted = end

    def _roll_over(self) -> None:
        """Move the content to a file. If that fails, the spool is unchanged."""
        assert isinstance(self._stream, io.BytesIO)
        descriptor, path = self._contents.new_file()
        try:
            write_all(descriptor, self._stream.getvalue())
            os.lseek(descriptor, self._stream.tell(), os.SEEK_SET)
        except BaseException:
            os.close(descriptor)
            disk.unlink(None, path)
            raise
        self._stream, self._path = io.FileIO(descriptor, "r+"), path
        self._uncount()

    def _uncount(self) -> None:
        self._contents.used -= self._counted
        self._counted = 0

    def read(self, size: int = -1, /) -> bytes | None:
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def truncate(self, size: int | None = None, /) -> int:
        return self._stream.truncate(size)

    def finish(self) -> BufferedContent:
        """Return the content; the caller owns it. The buffer's lock is held."""
        if isinstance(self._stream, io.BytesIO):
            data = self._stream.getvalue()
            self._uncount()
            content = self._contents.hold(data)
        else:
            content = BufferedContent(os.fstat(self._stream.fileno()).st_size, path=self._path)
            self._path = b""
        self._stream.close()
        return content

    def abandon(self) -> None:
        with self._contents.lock:
            self._uncount()
        self._stream.close()
        if self._path:
            disk.unlink(None, self._path)
            self._path = b""


def read_whole(descriptor: int) -> bytes:
    """Read an open file from its position to its end, and close it."""
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read()
