"""An errand's archive as frames, from an offset on. Each is read when it can be sent."""

from __future__ import annotations

import os

from mudroom.ext.fleet.wire.frame import Frame
from mudroom.ext.fleet.wire.message import ARCHIVE, ArchivePart, frame_of

PIECE = 1 << 18
"""Bytes in one part."""


class ArchiveSource:
    """Owner: the outbox's thread."""

    def __init__(self, path: bytes, stream: int, offset: int) -> None:
        """Raise FileNotFoundError if there is no archive."""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size
        self._stream, self._offset = stream, min(offset, self._size)

    @property
    def is_closed(self) -> bool:
        return self._file < 0

    def next_frame(self) -> Frame | None:
        if self._file < 0:
            return None
        data = os.pread(self._file, PIECE, self._offset)
        part = ArchivePart(self._offset, data, self._offset + len(data) >= self._size or not data)
        self._offset += len(data)
        if part.is_last:
            self.close()
        return frame_of(ARCHIVE, part, self._stream)

    def close(self) -> None:
        opened, self._file = self._file, -1
        if opened >= 0:
            os.close(opened)
