"""An errand's output on disk, and the source that sends it.

The command's thread appends; the outbox reads on from where it has sent to. The command never waits for the link, and a
later link sends the output again from its start. Output beyond a limit is dropped, as captured output is.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable

from mudroom.ext.fleet.wire.frame import Frame
from mudroom.ext.fleet.wire.message import OUT, Out, frame_of

PIECE = 1 << 16
"""Bytes in one frame."""
STREAMS = ("stdout", "stderr")
_FILES = {"stdout": b"/out", "stderr": b"/err"}


class OutputSpool:
    """Owner: the thread that runs the command. Other threads read the files by an ``OutputSource``."""

    def __init__(self, folder: bytes, limit: int) -> None:
        """``limit``: bytes for each stream."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._files = {name: os.open(folder + _FILES[name], flags, 0o600) for name in STREAMS}
        self._room = dict.fromkeys(STREAMS, limit)

    def write(self, name: str, data: bytes) -> None:
        """Keep output. Raise OSError as the disk does."""
        kept = data[: self._room[name]]
        self._room[name] -= len(kept)
        if kept:
            os.write(self._files[name], kept)

    def close(self) -> None:
        for name in STREAMS:
            descriptor, self._files[name] = self._files[name], -1
            if descriptor >= 0:
                os.close(descriptor)


class OutputSource:
    """An errand's output, and the frames that follow it. Owner: the outbox's thread."""

    def __init__(self, folder: bytes, stream: int) -> None:
        self._stream = stream
        self._files: list[tuple[int, int]] = []
        for number, name in enumerate(STREAMS, 1):
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
            self._files.append((number, os.open(folder + _FILES[name], flags, 0o600)))
        self._offsets = dict.fromkeys((1, 2), 0)
        self._last: deque[Frame] = deque()

    def finish(self, frames: Iterable[Frame]) -> None:
        """Send these behind the output. All output has been written."""
        self._last.extend(frames)

    def next_frame(self) -> Frame | None:
        is_finished = bool(self._last)  # read before the files: what is written later is not missed
        for number, descriptor in self._files:
            offset = self._offsets[number]
            data = os.pread(descriptor, PIECE, offset)
            if data:
                self._offsets[number] = offset + len(data)
                self._files.reverse()  # the other stream's turn
                return frame_of(OUT, Out(number, offset, data), self._stream)
        if not is_finished:
            return None
        frame = self._last.popleft()
        if not self._last:
            self.close()
        return frame

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop()[1])
