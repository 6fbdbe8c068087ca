"""Websocket frames from a server (RFC 6455 5.2), with their messages' payload changed.

Rules of this file: heads are passed on as they are, and payloads keep their length. The filter that changes a message
gets it as one text, in however many frames it comes; a control frame, which may stand between, is its own text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.relay import LINGER
from mudroom.net.gate.sanitizer import BodySanitizer

_CONTROL, _FINAL, _RESERVED, _MASKED = 0x8, 0x80, 0x70, 0x80
_LONGEST_CONTROL = 125


class BadMessageFrame(ValueError):
    """The text is printable."""


class MessageFrames:
    def __init__(self, new_filter: Callable[[], BodySanitizer]) -> None:
        """``new_filter`` returns the filter for one message."""
        self._new_filter = new_filter
        self._message = self._current = new_filter()
        self._buffer = bytearray()
        self._left = 0
        """Payload bytes in the current frame that have not arrived."""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to pass on; an incomplete head is kept. Raise BadMessageFrame."""
        buffer, parts = self._buffer, []
        buffer += data
        while buffer:
            if self._left:
                piece = bytes(buffer[: self._left])
                self._left -= len(piece)
                parts.append(self._current.see(piece))
            else:
                length = _head_length(buffer)
                if len(buffer) < length:
                    break
                piece = bytes(buffer[:length])
                self._begin(piece)
                parts.append(piece)
            del buffer[: len(piece)]
        return b"".join(parts)

    def _begin(self, head: bytes) -> None:
        code, length = head[0] & 0xF, head[1] & 0x7F
        if head[0] & _RESERVED:
            raise BadMessageFrame(
                "a message of the websocket is compressed, or uses an extension that was not agreed on"
            )
        if head[1] & _MASKED:
            raise BadMessageFrame("the server masks the messages of its websocket, which only clients do")
        if code & _CONTROL:
            if length > _LONGEST_CONTROL or not head[0] & _FINAL:
                raise BadMessageFrame("a control frame of the websocket is too long, or in parts")
            self._current = self._new_filter()
        else:
            if code:
                self._message = self._new_filter()
            self._current = self._message
        self._left = int.from_bytes(head[2:], "big") if length > _LONGEST_CONTROL else length


def _head_length(data: bytearray) -> int:
    """Return a head's length; 2 until its second byte is known."""
    return {126: 4, 127: 10}.get(data[1] & 0x7F, 2) if len(data) > 1 else 2


async def relay_messages(client: Peer, server: Peer, new_filter: Callable[[], BodySanitizer]) -> None:
    """Relay the client's bytes as they are, and the server's messages through filters, until both ends have finished,
    or either is lost. Raise PeerGone if a frame cannot be searched."""
    frames = MessageFrames(new_filter)
    try:
        client.pass_to(server)
        while server.buffer or await server.more():
            piece = frames.feed(server.take(len(server.buffer)))
            if client.lost:
                return
            await client.write(piece)
        if server.error:
            client.reset()
            return
        client.finish()
        if not client.ended:  # wait for the client's close frame and end
            await asyncio.wait({client.over}, timeout=LINGER)
    except BadMessageFrame as error:
        raise PeerGone(str(error)) from None
    finally:
        client.end()
        server.cut()
