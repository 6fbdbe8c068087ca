"""Frames of the bridge's pipe: four bytes of length, little-endian, and as many bytes. An empty one ends a stream.

The other half is in ``relay.py``, which stands alone. A client is never believed: a frame that is too long, or that
ends early, is an error of its connection.
"""

from __future__ import annotations

from mudroom.ext.windows.win32.pipe import PipeClosed, PipeStopped
from mudroom.typing import Protocol

PIECE = 1 << 16
"""The most bytes of a frame."""


class Readable(Protocol):
    def read(self, most: int, /) -> bytes:
        """Return what has come, at least a byte. Raise PipeClosed."""


class Writable(Protocol):
    def write(self, data: bytes, /) -> None:
        """Write all. Raise PipeClosed."""


class BrokenFrame(PipeClosed):
    """The client does not keep to the frames."""


def read_frame(pipe: Readable) -> bytes:
    """Return the next frame; empty at the end of the stream. Raise PipeClosed if the client has gone between two
    frames, BrokenFrame if it sent no frame, PipeStopped."""
    head = pipe.read(4)
    length = int.from_bytes(head + _read_exactly(pipe, 4 - len(head)), "little")
    if length > PIECE:
        raise BrokenFrame(f"a frame of {length} bytes")
    return _read_exactly(pipe, length)


def _read_exactly(pipe: Readable, length: int) -> bytes:
    data = b""
    while len(data) < length:
        try:
            data += pipe.read(length - len(data))
        except PipeStopped:
            raise
        except PipeClosed as closed:
            raise BrokenFrame("a frame was cut off") from closed
    return data


def write_frame(pipe: Writable, data: bytes) -> None:
    """Write a frame of at most ``PIECE`` bytes. Raise PipeClosed."""
    pipe.write(len(data).to_bytes(4, "little") + data)
