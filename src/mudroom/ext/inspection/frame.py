"""Incoming HTTP/2 frames: bounded before they are buffered, and GOAWAY is kept from the library.

Rules of this file: pure; the time is an argument. h2 buffers a frame of up to 16 MiB before it rejects its length, and
ends all streams at a GOAWAY, which is wrong: streams up to its number continue (RFC 9113 6.8). Frames that
are cheap to send and expensive to process (above all resets: CVE-2023-44487) are let through at a limited rate: all
frames but those that carry data or headers, and updates of windows for data that was sent.
"""

from __future__ import annotations

from mudroom.typing import NamedTuple

LONGEST = 16384
"""Maximum bytes in a frame: the default SETTINGS_MAX_FRAME_SIZE, which the gate does not change."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BLOCK = 48 << 10
"""Maximum bytes in one message's header frames. h2 would hold a MiB if they do not end."""
_DATA, _HEADERS, _RESET, _PROMISE, _GOAWAY, _UPDATE, _CONTINUATION = 0, 1, 3, 5, 7, 8, 9
_HEAD = 9
_END_STREAM, _PADDED = 1, 8
"""Flags of DATA."""
_UPDATED = 1 << 10
"""Bytes for which an honest receiver updates a window at most once, except for the two windows of each frame."""


class Flood(ValueError):
    """The other side sends more frames of a type than any honest peer does."""


class Goaway(NamedTuple):
    last: int
    """The highest stream that is still served."""
    code: int


class Bucket:
    """A token bucket: ``size`` at once, ``rate`` per second."""

    def __init__(self, size: float, rate: float) -> None:
        self._size, self._rate, self._left, self._at = size, rate, size, 0.0

    def take(self, now: float) -> bool:
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        self._left -= 1
        return self._left >= 0


class Frames:
    def __init__(self, preface: bytes = b"", resets: Bucket | None = None) -> None:
        """``preface``: the bytes before the first frame. ``resets``: the limit for RST_STREAM."""
        self.goaway: Goaway | None = None
        self._preface = len(preface)
        self._buffer = bytearray()
        self._resets = resets
        self._updates = 0
        """Updates of windows that data sent to the other side makes up for."""
        self._block = 0
        """Bytes in a header block that has not ended."""
        self._idle = Bucket(20_000, 5_000)

    def feed(self, data: bytes, now: float) -> bytes:
        """Return the complete frames, in order, without GOAWAY; an incomplete one is kept. Raise Flood."""
        buffer = self._buffer
        buffer += data
        if self._preface and len(buffer) < self._preface:
            return b""
        at, start, parts = self._preface, 0, []
        self._preface = 0
        while len(buffer) - at >= _HEAD:
            length, kind = int.from_bytes(buffer[at : at + 3], "big"), buffer[at + 3]
            if length > LONGEST:
                raise Flood(f"a frame of {length} bytes")
            end = at + _HEAD + length
            if len(buffer) < end:
                break
            is_padded = kind == _DATA and length and buffer[at + 4] & _PADDED
            self._count(kind, length, buffer[at + 4], 1 + buffer[at + _HEAD] if is_padded else 0, now)
            if kind == _GOAWAY and length >= 8:
                body = buffer[at + _HEAD : end]
                self.goaway = Goaway(int.from_bytes(body[:4], "big") & 0x7FFFFFFF, int.from_bytes(body[4:8], "big"))
                parts.append(bytes(buffer[start:at]))
                start = end
            at = end
        parts.append(bytes(buffer[start:at]))
        del buffer[:at]
        return b"".join(parts)

    def has_sent(self, length: int) -> None:
        """Count a frame of data to the other side."""
        self._updates += 2 + length // _UPDATED

    def _count(self, kind: int, length: int, flags: int, padding: int, now: float) -> None:
        if kind == _RESET and self._resets is not None:
            if not self._resets.take(now):
                raise Flood("one stream after the other is begun and reset")
            return
        if kind in (_HEADERS, _PROMISE, _CONTINUATION):
            self._block = length + (self._block if kind == _CONTINUATION else 0)
            if self._block > BLOCK:
                raise Flood(f"headers of more than {BLOCK} bytes")
        has_data = kind == _DATA and (length > padding or flags & _END_STREAM)
        if has_data or kind in (_HEADERS, _PROMISE) or (kind == _CONTINUATION and length):
            return
        if kind == _UPDATE and self._updates:
            self._updates -= 1
        elif not self._idle.take(now):
            raise Flood("frame after frame that says nothing")


def goaway(last: int, code: int) -> bytes:
    body = last.to_bytes(4, "big") + code.to_bytes(4, "big")
    return len(body).to_bytes(3, "big") + bytes((_GOAWAY, 0)) + bytes(4) + body
