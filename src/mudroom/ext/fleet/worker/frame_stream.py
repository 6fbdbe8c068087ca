"""Frames from the origin, and its hello."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import msgspec

from mudroom import __version__
from mudroom.ext.fleet.wire import message
from mudroom.ext.fleet.wire.frame import Frame, FrameReader, LinkError
from mudroom.ext.fleet.wire.message import message_of

LIMITS = {
    message.HELLO: 1 << 16, message.PING: 64, message.PONG: 64, message.BYE: 1 << 16, message.FAILED: 1 << 16,
    message.OFFER: 1 << 20, message.OBJECTS: 9 << 20, message.ERRAND: 4 << 20, message.ANSWER: 1 << 16,
    message.FETCH: 1 << 10, message.KEPT: 1 << 10, message.CANCEL: 1 << 10, message.DIALLED: 1 << 12,
    message.DATA: 1 << 15, message.SHUT: 1, message.ROOM: 16,
}  # fmt: skip
"""Bytes in a body that a worker takes, by kind."""
_PIECE = 1 << 18


class FrameStream:
    """Frames from a descriptor. Owner: the thread that reads the link."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reader = FrameReader(LIMITS, 0)
        self._frames: Iterator[Frame] = iter(())

    def next(self) -> Frame | None:
        """Return the next frame; None: the stream has ended. Raise LinkError at a frame that is not allowed, after
        those before it."""
        while (frame := next(self._frames, None)) is None:
            try:
                data = os.read(self._descriptor, _PIECE)
            except OSError:
                return None
            if not data:
                return None
            self._frames = self._reader.feed(data)
        return frame

    def has_unread(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return any(events & select.POLLIN for _descriptor, events in poll.poll(0))


class OtherProtocol(LinkError):
    """The origin speaks another protocol."""


def origin_hello(frame: Frame | None) -> message.OriginHello:
    """Return the origin's hello. Raise LinkError, which names both versions if they differ."""
    if frame is None:
        raise LinkError("has gone without a word")
    if frame.kind != message.HELLO:
        raise LinkError(f"began with a frame of kind {frame.kind} instead of a hello")
    try:
        start = msgspec.msgpack.decode(frame.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise LinkError(f"sent a hello that cannot be read: {error}") from error
    if not isinstance(start, list) or len(start) < 2 or type(start[0]) is not int:
        raise LinkError("sent a hello without a version")
    if start[0] != message.PROTOCOL:
        theirs = f"protocol {start[0]} of mudroom {str(start[1])[:40]}"
        raise OtherProtocol(f"speaks {theirs}; this worker speaks protocol {message.PROTOCOL} of mudroom {__version__}")
    return message_of(frame, message.OriginHello)
