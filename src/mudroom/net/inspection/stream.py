"""One end of an inspected HTTP/2 connection, and what goes one way in one stream.

Rules of this file: what has arrived is acknowledged (and replaced by more) only when the other end has taken it, so a
lane never holds more than its window, and both ends together no more than theirs. Whoever does not read is not written
to beyond that. The library frames; what is in the frames is for ``bridge.py``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event
from h2.exceptions import NoSuchStreamError, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings

from mudroom.net.gate.peer import PeerGone
from mudroom.net.inspection.secure import TlsConnection
from mudroom.net.protocol.frame import PREFACE, Bucket, Flood, Frames, goaway
from mudroom.net.protocol.pseudo_header import Field

STREAMS = 100
"""At one time in one connection of a client."""
HEADERS = 32 << 10
"""Bytes of the headers of one message, as RFC 9113 6.5.2 counts them."""
WINDOW, ALL_WINDOWS = 1 << 20, 2 << 20
"""Bytes of one stream, and of all of a connection, that may be on their way."""
_ROUND = 256 << 10
"""Bytes that are framed before they are sent."""
_RESETS = 200, 100
"""At once, and each second."""
_UNREAD = 32
"""Times that an end which does not read what it is sent is still listened to."""


class Lane:
    """From one end's stream to the other's. ``number`` is the stream's where it goes to; 0: it is not open there."""

    def __init__(self, source: StreamEnd | None, source_number: int, number: int, over: Callable[[], None]) -> None:
        """``over``: is called when the last of it has been passed on."""
        self.number = number
        self.count = 0
        """Bytes that have been passed on."""
        self.is_ended = False
        """Nothing follows what is held."""
        self.reset: int | None = None
        """With this error it is broken off behind what is held."""
        self.is_done = False
        """All has been passed on, or is not to be any more."""
        self.trailers: list[Field] | None = None
        self.is_queued = False
        self._over = over
        self._source = source
        self._source_number = source_number
        self._pieces: deque[bytes] = deque()

    def put(self, piece: bytes, padding: int = 0) -> None:
        if self.is_done:
            self._acknowledge(len(piece) + padding)
            return
        self._acknowledge(padding)
        if piece:
            self._pieces.append(piece)

    def stop(self) -> None:
        """What is held, and what still comes, goes nowhere."""
        self.is_done = True
        self._acknowledge(sum(map(len, self._pieces)))
        self._pieces.clear()

    def finish(self) -> None:
        """The last of it has been passed on."""
        self.is_done = True
        self._over()

    def holds(self) -> bool:
        return bool(self._pieces)

    def is_waiting(self) -> bool:
        """There is nothing to send now."""
        return not self._pieces and not self.is_ended and self.reset is None

    def take(self, most: int) -> bytes:
        piece = self._pieces.popleft()
        if len(piece) > most:
            self._pieces.appendleft(piece[most:])
            piece = piece[:most]
        self.count += len(piece)
        self._acknowledge(len(piece))
        return piece

    def _acknowledge(self, length: int) -> None:
        if length and self._source is not None:
            self._source.acknowledge(self._source_number, length)


class StreamEnd:
    """``is_client``: which part we play there, with the server at the other side."""

    def __init__(self, peer: TlsConnection, *, is_client: bool) -> None:
        self.peer = peer
        self.h2 = H2Connection(H2Configuration(client_side=is_client, header_encoding=None))
        values = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_HEADER_LIST_SIZE: HEADERS,
        }
        self.h2.local_settings = Settings(client=is_client, initial_values=values)
        self.h2.decoder.max_header_list_size = HEADERS
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(ALL_WINDOWS - (1 << 16) + 1)
        self.frames = Frames() if is_client else Frames(PREFACE, Bucket(*_RESETS))
        self.is_broken = False
        """The library sends nothing more."""
        self._ready: deque[Lane] = deque()
        self._dirty = asyncio.Event()
        self._dirty.set()
        self._raw: list[bytes] = []
        self._taken = asyncio.Event()
        self._taken.set()
        self._unread = 0
        self._loop = asyncio.get_running_loop()

    # --- reading ---

    async def events(self) -> list[Event] | None:
        """The events of the next bytes; None at the end. Raises Flood, ProtocolError, Gone."""
        if not self._taken.is_set():
            self._unread += 1
            if self._unread > _UNREAD:
                await self._taken.wait()
        peer = self.peer
        if not peer.buffer and not await peer.more():
            if peer.error:
                raise PeerGone(peer.error)
            return None
        try:
            whole = self.frames.feed(peer.take(len(peer.buffer)), self._loop.time())
            return self.h2.receive_data(whole) if whole else []
        except (ProtocolError, Flood) as error:
            self.is_broken = True
            if isinstance(error, Flood):
                self._raw.append(goaway(0, ErrorCodes.ENHANCE_YOUR_CALM))
            raise
        finally:
            self._dirty.set()

    def acknowledge(self, number: int, length: int) -> None:
        if not self.is_broken:
            self.h2.acknowledge_received_data(length, number)
            self._dirty.set()

    # --- writing ---

    def wake(self) -> None:
        """There may be something to send."""
        self._dirty.set()

    def want(self, lane: Lane) -> None:
        """The lane to this end holds something, or has ended."""
        if lane.number and not lane.is_queued and not lane.is_done:
            lane.is_queued = True
            self._ready.append(lane)
            self._dirty.set()

    def say(self, number: int, headers: list[Field], *, last: bool = False) -> bool:
        """Send headers now. False if the stream is not there any more."""
        if self.is_broken:
            return False
        try:
            self.h2.send_headers(number, headers, end_stream=last)
        except (NoSuchStreamError, StreamClosedError):
            return False
        self._dirty.set()
        return True

    def reset(self, number: int, code: int) -> None:
        """End a stream, if it is still there."""
        if not number:
            return
        try:
            self.h2.reset_stream(number, code)
        except ProtocolError:
            pass  # it has ended otherwise
        self._dirty.set()

    def say_goaway(self, last: int) -> None:
        self._raw.append(goaway(last, 0))
        self._dirty.set()

    async def write(self) -> None:
        """Send what there is to send, for ever. Raises Gone."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self.flush()

    async def flush(self) -> None:
        if self._fill():
            self._dirty.set()
        data = self.h2.data_to_send() + b"".join(self._raw)
        self._raw.clear()
        if data:
            self._taken.clear()
            await self.peer.write(data)
            self._taken.set()
            self._unread = 0

    def _fill(self) -> bool:
        """Frame what the windows take; True if there would be more."""
        if self.is_broken:
            return False
        left, blocked = _ROUND, []
        while self._ready and left > 0:
            lane = self._ready.popleft()
            length = self._send(lane)
            if length < 0:
                blocked.append(lane)
            elif lane.is_done or lane.is_waiting():
                lane.is_queued = False
            else:
                self._ready.append(lane)
            left -= max(length, 0)
        more = bool(self._ready)
        self._ready.extend(blocked)
        return more

    def _send(self, lane: Lane) -> int:
        """One frame of it; returns its length, -1 if the window is closed."""
        if lane.is_done:
            return 0
        try:
            return self._framed(lane)
        except (NoSuchStreamError, StreamClosedError):
            lane.stop()  # it was reset, which is told by an event
            return 0

    def _framed(self, lane: Lane) -> int:
        h2, number, length = self.h2, lane.number, 0
        if lane.holds():
            window = min(h2.local_flow_control_window(number), h2.max_outbound_frame_size)
            if window <= 0:
                return -1
            piece = lane.take(window)
            length = len(piece)
            last = lane.is_ended and not lane.holds() and lane.trailers is None
            h2.send_data(number, piece, end_stream=last)
            if last:
                lane.finish()
        elif lane.reset is not None:
            h2.reset_stream(number, lane.reset)
            lane.finish()
        elif lane.is_ended:
            if lane.trailers is None:
                h2.end_stream(number)
            else:
                h2.send_headers(number, lane.trailers, end_stream=True)
            lane.finish()
        return length
