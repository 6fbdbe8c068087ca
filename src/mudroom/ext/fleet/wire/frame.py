"""Frames on a link between origin and worker, as bytes and back.

    u32 length | u8 kind | u32 stream | body (``length`` bytes)          integers are big-endian

``stream`` is an errand's number on this link, 0 for the link itself. The body is a message (``message.py``), or raw
bytes for the kinds that say so.

Rules of this file: no input makes a reader hold more than ``LARGEST`` bytes; a bad frame ends the link, since nothing
behind it can be trusted; a body is never decoded here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from mudroom.errors import MudroomError
from mudroom.typing import NamedTuple

LARGEST = 16 << 20
"""Bytes in a body, at most."""
_HEAD = struct.Struct(">IBI")


class LinkError(MudroomError):
    """The other end broke the protocol. The link has to be closed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the other end of the link {reason}", "the link is closed; errands that ran are kept there")
        self.reason = reason


class Frame(NamedTuple):
    kind: int
    stream: int = 0
    body: bytes = b""


def encode(frame: Frame) -> bytes:
    """Return a frame's bytes. Raise ValueError if its body is larger than ``LARGEST``."""
    if len(frame.body) > LARGEST:
        raise ValueError(f"a body of {len(frame.body):,} bytes; at most {LARGEST:,} fit into a frame")
    return _HEAD.pack(len(frame.body), frame.kind, frame.stream) + frame.body


class FrameReader:
    """Frames from a byte stream that arrives in pieces."""

    def __init__(self, limits: Mapping[int, int] = MappingProxyType({}), limit: int = LARGEST) -> None:
        """``limits``: body sizes in bytes, by kind; ``limit``: for any other kind. A kind with the limit 0 has no
        body."""
        self._buffer = bytearray()
        self._limits, self._limit = limits, min(limit, LARGEST)

    @property
    def is_between_frames(self) -> bool:
        """Whether an end of the stream here loses no frame."""
        return not self._buffer

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete with ``data``. Raise LinkError at the first head that is not allowed,
        before its body is awaited."""
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= _HEAD.size:
                length, kind, stream = _HEAD.unpack_from(self._buffer, at)
                if length > self._limits.get(kind, self._limit):
                    raise LinkError(f"announced a frame of {length:,} bytes")
                end = at + _HEAD.size + length
                if len(self._buffer) < end:
                    return
                body = bytes(self._buffer[at + _HEAD.size : end])
                at = end
                yield Frame(kind, stream, body)
        finally:
            del self._buffer[:at]
