"""An archive that comes from a worker part by part, in a file that a later link continues."""

from __future__ import annotations

import os
from _blake2 import blake2b

from mudroom.ext.fleet.wire.frame import LinkError

_NAME = b"/archive"
_READ = 1 << 20


class IncomingArchive:
    """The file is the origin's own, and is written at its end only. Owner: the verb's thread."""

    def __init__(self, directory: bytes, announced: int, digest: bytes) -> None:
        """``announced``: the whole archive's size in bytes; ``digest``: its digest. Both are the worker's claims."""
        self._path, self._announced, self._digest = directory + _NAME, announced, digest
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._opened = os.open(self._path, flags, 0o600)
        self.size = os.fstat(self._opened).st_size
        if self.size > announced:  # from an earlier announcement
            os.ftruncate(self._opened, 0)
            self.size = 0
        self.resumed_from = self.size
        """Bytes that an earlier link has brought."""

    @staticmethod
    def path_in(directory: bytes) -> bytes:
        return directory + _NAME

    @property
    def is_whole(self) -> bool:
        return self.size == self._announced

    def add(self, offset: int, data: bytes) -> None:
        """Write a part. Raise LinkError if it is not the next one, or more than was announced."""
        if offset != self.size:
            raise LinkError(f"sent bytes {offset:,} of an archive of which {self.size:,} have come")
        if self.size + len(data) > self._announced:
            raise LinkError(f"sent more of an archive than the {self._announced:,} bytes that it announced")
        view = memoryview(data)
        while view:
            written = os.pwrite(self._opened, view, self.size)
            self.size += written
            view = view[written:]

    def is_valid(self) -> bool:
        """Return whether the file has the announced size and digest."""
        opened = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            hasher, size = blake2b(digest_size=32), 0
            while block := os.read(opened, _READ):
                hasher.update(block)
                size += len(block)
            return size == self._announced and hasher.digest() == self._digest
        finally:
            os.close(opened)

    def close(self) -> None:
        if self._opened >= 0:
            os.close(self._opened)
            self._opened = -1

    def remove(self) -> None:
        self.close()
        os.unlink(self._path)
