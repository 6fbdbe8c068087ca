"""One end of an inspected HTTP/2 connection, and one direction of a stream.

Rules of this file:

- Received data is acknowledged (which lets more arrive) only when the other end has accepted it, so a lane never holds
  more than its window, and both ends together no more than theirs. An end that does not read is not sent more than
  that.
- A window is charged to the connection's account before it is granted. It is small at first and grows when as much has
  been passed on, so only an end that reads gets a large window, and only while there is ample room.
- The library frames; ``bridge.py`` interprets the frames. All headers, data and trailers for the client pass its end's
  sanitizer, where they are framed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event
from h2.exceptions import NoSuchStreamError, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings

from mudroom.core.network.budget import FLOOR
from mudroom.ext.inspection.frame import PREFACE, Bucket, Flood, Frames, goaway
from mudroom.ext.inspection.pseudo_header import Field
from mudroom.ext.inspection.sanitizer import Sanitizer, StreamSanitizer
from mudroom.ext.inspection.tls import TlsConnection
from mudroom.net.gate.peer import PeerGone

STREAMS = 100
"""Concurrent streams on a client connection."""
HEADERS = 32 << 10
"""Maximum bytes in one message's headers, as RFC 9113 6.5.2 counts them."""
WINDOW, ALL_WINDOWS = 64 << 10, 128 << 10
"""Initial bytes in flight: for a stream, and for a whole connection, which is charged before (``inspect.py``)."""
_LARGEST, _LARGEST_ALL = 1 << 20, 2 << 20
"""As above, after growing."""
_AMPLE = 16
"""Room that a window needs to grow, in multiples of its growth."""
_ROUND = 256 << 10
"""Bytes that are framed before they are sent."""
_AHEAD = 64 << 10
"""Bytes in framed headers that may wait for an end that does not read; beyond that the other end is not read."""
_TABLE = 4096
"""Bytes in a compression table, whatever the other side allows (the default in RFC 9113 6.5.2)."""
_SHORT = 2048
"""Waiting pieces are joined up to this many bytes: each piece takes more memory than its bytes."""
_TAKEN = 64 << 10
"""Bytes that are parsed at a time: their events are held until the other end keeps up."""
_FIELD = 32
"""Overhead bytes for each header, as RFC 9113 6.5.2 counts them."""
_RESETS = 200, 100
"""Burst size, and rate per second."""
_UNREAD = 32
"""Reads that are served from an end that does not read its own data."""


def size_of(fields: list[Field]) -> int:
    """Return the bytes in headers, as RFC 9113 6.5.2 counts them."""
    return sum(len(name) + len(value) + _FIELD for name, value in fields)


class Lane:
    """One direction of a stream, from one end to the other. ``number`` is the stream's number at the target end; 0: not
    open there."""

    def __init__(self, source: StreamEnd | None, source_number: int, number: int, over: Callable[[], None]) -> None:
        """``over`` is called when the last data has been passed on."""
        self.number = number
        self.count = 0
        """Bytes that have been passed on."""
        self.is_ended = False
        """Whether no data follows the held pieces."""
        self.reset: int | None = None
        """Error code for a reset that follows the held pieces."""
        self.is_done = False
        """Whether all data has been passed on, or is discarded."""
        self.trailers: list[Field] | None = None
        self.is_queued = False
        self.search: StreamSanitizer | None = None
        """Searches the data; set by the sending end if it has a sanitizer."""
        self._over = over
        self._source = source
        self._source_number = source_number
        self._window = WINDOW
        self._pieces: deque[bytes] = deque()
        self._is_clean = False
        """Whether the first piece is left over from a piece that has been searched."""

    def put(self, piece: bytes, padding: int = 0) -> None:
        if self.is_done:
            self._acknowledge(len(piece) + padding)
            return
        self._acknowledge(padding)
        pieces = self._pieces
        if piece and len(pieces) > 1 and len(pieces[-1]) + len(piece) <= _SHORT:
            pieces[-1] += piece
        elif piece:
            pieces.append(piece)

    def stop(self) -> None:
        """Discard the held data, and all data that still arrives."""
        self.is_done = True
        self._acknowledge(sum(map(len, self._pieces)))
        self._pieces.clear()

    def finish(self) -> None:
        """Mark the last data as passed on."""
        self.is_done = True
        self._over()

    def holds(self) -> bool:
        return bool(self._pieces)

    def is_waiting(self) -> bool:
        """Return whether there is no data to send now."""
        return not self._pieces and not self.is_ended and self.reset is None

    def take(self, most: int) -> bytes:
        """Return the next bytes, at most ``most``."""
        # A piece is searched whole, as it has come: otherwise the receiving end could choose by its window where values
        # are cut.
        piece = self._pieces.popleft()
        if self.search is not None and not self._is_clean:
            piece = self.search.see(piece)
        self._is_clean = len(piece) > most
        if self._is_clean:
            self._pieces.appendleft(piece[most:])
            piece = piece[:most]
        self.count += len(piece)
        self._acknowledge(len(piece))
        return piece

    def _acknowledge(self, length: int) -> None:
        if length and self._source is not None:
            self._source.acknowledge(self._source_number, length)
            if self._window < self._source.stream_window:
                self._window = self._source.widen(self._source_number, self._window)


class StreamEnd:
    """``is_client``: whether the gate is the client of this connection. ``sanitizer``: for what it sends."""

    def __init__(self, peer: TlsConnection, *, is_client: bool, sanitizer: Sanitizer | None = None) -> None:
        self.peer = peer
        self._sanitizer = sanitizer if sanitizer is not None and sanitizer.searches else None
        self._account = peer.account
        self._window, self._passed = ALL_WINDOWS, 0
        """The connection's window, and the bytes that have been passed on since it was opened."""
        self.stream_window = WINDOW
        """Window for streams that move data."""
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
        """Whether the library sends no more."""
        self._ready: deque[Lane] = deque()
        self._dirty = asyncio.Event()
        self._dirty.set()
        self._raw: list[bytes] = []
        self._taken = asyncio.Event()
        self._taken.set()
        self._unread = 0
        self._framed = 0
        """Bytes in headers that are framed and not sent. They are charged."""
        self._caught_up = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    # --- reading ---

    async def events(self) -> list[Event] | None:
        """Return the events from the next bytes, or None at the end. Raise Flood, ProtocolError, PeerGone."""
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
            whole = self.frames.feed(peer.take(_TAKEN), self._loop.time())
            events = self.h2.receive_data(whole) if whole else []
            if self.h2.encoder.header_table_size > _TABLE:
                self.h2.encoder.header_table_size = _TABLE
            return events
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
            self._passed += length
            if self._passed >= self._window:
                self._open_window()
            self._dirty.set()

    def _open_window(self) -> None:
        """Enlarge the connection's window four times, if there is ample room."""
        more = min(3 * self._window, _LARGEST_ALL - self._window)
        if more and self._account.room() >= more and self._account.share.room() >= _AMPLE * more:
            self._account.hold(more)
            self.h2.increment_flow_control_window(more)
            self._window += more
            self.stream_window = min(_LARGEST, self._window // 2)
        self._passed = 0

    def widen(self, number: int, window: int) -> int:
        """Widen a stream's window to the current ``stream_window``. Return its size."""
        with suppress(ProtocolError):  # the stream is closed, or the connection is broken
            self.h2.increment_flow_control_window(self.stream_window - window, number)
        return self.stream_window

    # --- writing ---

    def wake(self) -> None:
        """Wake the writer: there may be data to send."""
        self._dirty.set()

    def want(self, lane: Lane) -> None:
        """Queue a lane to this end that holds data or has ended."""
        if lane.number and not lane.is_queued and not lane.is_done:
            lane.is_queued = True
            self._ready.append(lane)
            self._dirty.set()

    def send_headers(self, number: int, headers: list[Field], *, last: bool = False) -> bool:
        """Send headers now. Return False if the stream is closed."""
        if self.is_broken:
            return False
        try:
            self.h2.send_headers(number, self._clean(headers), end_stream=last)
        except (NoSuchStreamError, StreamClosedError):
            return False
        self.has_framed(headers)
        return True

    def has_framed(self, headers: list[Field]) -> None:
        """Charge headers that wait to be sent."""
        size = size_of(headers)
        self._framed += size
        self._account.hold(size)
        self._dirty.set()

    @property
    def is_behind(self) -> bool:
        """Return whether so many headers wait that no more may be framed (``keep_up``)."""
        return self._framed > _AHEAD

    async def keep_up(self) -> None:
        """Wait until the framed headers are sent."""
        while self.is_behind:
            self._caught_up.clear()
            await self._caught_up.wait()

    def _clean(self, fields: list[Field]) -> list[Field]:
        return fields if self._sanitizer is None else self._sanitizer.fields(fields)

    def reset(self, number: int, code: int) -> None:
        """Reset a stream if it is open."""
        if not number:
            return
        with suppress(ProtocolError):  # already closed
            self.h2.reset_stream(number, code)
        self._dirty.set()

    def say_goaway(self, last: int) -> None:
        self._raw.append(goaway(last, 0))
        self._dirty.set()

    async def write(self) -> None:
        """Send pending data, for ever. Raise PeerGone."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self.flush()

    async def flush(self) -> None:
        if self._fill():
            self._dirty.set()
        data = self.h2.data_to_send() + b"".join(self._raw)
        self._raw.clear()
        self._account.free(self._framed)  # the transport charges data that it cannot send now
        self._framed = 0
        self._caught_up.set()
        if data:
            self._taken.clear()
            await self.peer.write(data)
            self._taken.set()
            self._unread = 0

    def _fill(self) -> bool:
        """Frame as much as the windows allow. Return True if more could be framed."""
        if self.is_broken:
            return False
        left, blocked = max(FLOOR, min(_ROUND, self._account.room())), []
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
        """Send one frame. Return its length, or -1 if the window is closed."""
        if lane.is_done:
            return 0
        try:
            return self._frame(lane)
        except (NoSuchStreamError, StreamClosedError):
            lane.stop()  # the stream was reset; an event reports it
            return 0

    def _frame(self, lane: Lane) -> int:
        h2, number, length = self.h2, lane.number, 0
        if lane.holds():
            window = min(h2.local_flow_control_window(number), h2.max_outbound_frame_size)
            if window <= 0:
                return -1
            if lane.search is None and self._sanitizer is not None:
                lane.search = self._sanitizer.stream()
            piece = lane.take(window)
            length = len(piece)
            last = lane.is_ended and not lane.holds() and lane.trailers is None
            h2.send_data(number, piece, end_stream=last)
            self.frames.has_sent(length)
            if last:
                lane.finish()
        elif lane.reset is not None:
            h2.reset_stream(number, lane.reset)
            lane.finish()
        elif lane.is_ended:
            if lane.trailers is None:
                h2.end_stream(number)
            else:
                h2.send_headers(number, self._clean(lane.trailers), end_stream=True)
            lane.finish()
        return length
