"""One end of a connection in the gate: its bytes are first read by the gate, later passed on to another peer.

Rules of this file: a peer's buffer is bounded, and charged to its connection's account. The peer's transport is paused
(pause_reading) above ``HELD`` unread bytes, above ``FLOOR`` if the account has no room, or while its target has unsent
bytes, so a slow reader slows down the writer instead of filling memory. Received data is a view that is valid during
the call only (``transport.py``).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from mudroom.core.network.budget import FLOOR, Account
from mudroom.net.gate.transport import BULK, UNCHARGED, SocketTransport
from mudroom.typing import cast

HELD = 64 << 10
"""Buffered bytes at which the gate stops reading from a client that waits for a verdict; one read may exceed them."""
DISMISSAL = 2.0
"""Seconds that a refused client may continue sending."""


class PeerGone(Exception):
    """The peer closed or lost the connection before all data was read or written."""


class Peer(asyncio.Protocol):
    """Use ``read`` and ``write`` until ``pass_to``; from then on, received bytes go to the other peer."""

    transport: asyncio.Transport

    def __init__(self, account: Account = UNCHARGED) -> None:
        self.account = account
        self.buffer = bytearray()
        """Received bytes that have not been taken. Change it by this class's methods only: they are charged."""
        self.count = 0
        """Total bytes received."""
        self.ended = False
        """The peer sends no more: a half-close, or the connection is lost."""
        self.lost = False
        self.error = ""
        self.when_lost: Callable[[], None] = _nothing
        """Called when the connection is lost."""
        self._over: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] | None = None
        self._target: Peer | None = None
        self._source: Peer | None = None
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._paused = False
        self._full = False

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.account is not UNCHARGED:
            self.account.enter()

    def charge_to(self, account: Account) -> None:
        """Charge the bytes that this peer holds to its connection's account."""
        if self.buffer:
            self.account.free(len(self.buffer))
            account.hold(len(self.buffer))
        account.enter()
        if self.account is not UNCHARGED:
            self.account.leave()
        self.account = account
        if isinstance(self.transport, SocketTransport):
            self.transport.charge_to(account)

    def data_received(self, data: bytes | memoryview) -> bool:  # type: ignore[override]
        """Return whether the data was passed on to a socket, and no task was woken (``event_loop.py``)."""
        self.count += len(data)
        target = self._target
        if target is not None:
            target.transport.write(data)
            return isinstance(target.transport, SocketTransport)
        self.buffer += data
        self.account.hold(len(data))
        unread = len(self.buffer)
        if unread >= FLOOR and not self._paused and (unread >= HELD or self.account.room() <= 0):
            self._paused = True
            self.transport.pause_reading()
        self._wake()
        return False

    def eof_received(self) -> bool:
        self.ended = True
        complete(self._over)
        target = self._target
        if target is not None and target.ended:
            self.end()
            target.end()
        elif target is not None:
            target.finish()
        self._wake()
        return True  # the other direction stays open: half-closed connections are passed on as such

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost and self.account is not UNCHARGED:
            self.account.leave()
        self.ended = self.lost = True
        self.error = "" if error is None else str(error) or type(error).__name__
        if self._target is not None:
            self._target.end(error)
        if self._source is not None:
            self._source.end(error)
        complete(self._over)
        complete(self._closed)
        self._wake()
        self.resume_writing()
        self.when_lost()

    def pause_writing(self) -> None:
        self._full = True
        if self._source is not None and not self._source.ended:
            self._source.transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        if self._source is not None and not self._source.ended:
            self._source.transport.resume_reading()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake(self) -> None:
        complete(self._news)

    # --- called by the gate ---

    @property
    def over(self) -> asyncio.Future[None]:
        """A future that is done when the peer sends no more."""
        if self._over is None:
            self._over = _future(self.ended)
        return self._over

    @property
    def closed(self) -> asyncio.Future[None]:
        """A future that is done when the connection is lost."""
        if self._closed is None:
            self._closed = _future(self.lost)
        return self._closed

    def news(self) -> asyncio.Future[None]:
        """Return a future that is done when ``buffer`` holds more than now, or never will."""
        if self._news is None or self._news.done():
            self._news = _future(False)
        self._expect()
        return self._news

    def _expect(self) -> None:
        if self.ended:
            self._wake()
        elif self._paused and len(self.buffer) < HELD:
            self._paused = False
            self.transport.resume_reading()

    def news_with(self, other: Peer) -> asyncio.Future[None]:
        """Return a future that is done when either peer's buffer holds more than now, or never will."""
        self._news = other._news = future = _future(False)
        self._expect()
        other._expect()
        return future

    async def more(self) -> bool:
        """Wait until ``buffer`` holds more than now. Return False if it never will."""
        before = self.count
        await self.news()
        return self.count > before

    @property
    def is_idle(self) -> bool:
        """Return whether the connection is open and has no unread data."""
        return not self.ended and not self.buffer and not self.transport.is_closing()

    def take(self, length: int) -> bytes:
        """Remove and return the buffer's first bytes."""
        data = bytes(self.buffer[:length])
        del self.buffer[:length]
        self.account.free(len(data))
        return data

    def put_back(self, data: bytes) -> None:
        """Put taken bytes back at the buffer's start."""
        self.buffer[:0] = data
        self.account.hold(len(data))

    def drop(self) -> None:
        """Forget the buffer."""
        self.account.free(len(self.buffer))
        self.buffer.clear()

    async def write(self, data: bytes) -> None:
        """Send, and wait while the send buffer is full. Raise PeerGone if the connection is lost."""
        if self.lost or self.transport.is_closing():
            raise PeerGone(self.error or "connection closed")
        self.transport.write(data)
        if self._full:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
            if self.lost:
                raise PeerGone(self.error or "connection closed")

    def finish(self) -> None:
        """Half-close: send end of file after the buffered data."""
        if not self.lost and self.transport.can_write_eof() and not self.transport.is_closing():
            with suppress(OSError):  # the connection is lost; connection_lost reports it
                self.transport.write_eof()

    def end(self, error: Exception | None = None) -> None:
        """Close after the buffered data is sent; at once, with a reset, if the other side ended in a reset."""
        if self.lost or self.transport.is_closing():
            return
        if error is None:
            self.transport.close()
        else:
            self.reset()

    async def dismiss(self) -> None:
        """Close so that the last response is received."""
        # Closing with unread data causes a reset, which can overtake the response (RFC 9112 9.6).
        self.finish()
        with suppress(TimeoutError):  # the client keeps sending; close anyway
            if not self.ended:
                async with asyncio.timeout(DISMISSAL):
                    while not self.ended:
                        self.drop()
                        await self.more()
        self.drop()
        self.end()

    def cut(self) -> None:
        """Close at once and drop unsent data."""
        if not self.lost:
            self.transport.abort()

    def reset(self) -> None:
        """Close as ``cut`` does; the other end gets a reset, not an end of file (SO_LINGER with 0 seconds,
        socket(7))."""
        if self.lost or self.transport.is_closing():
            return
        channel: socket.socket = self.transport.get_extra_info("socket")
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def pass_to(self, target: Peer) -> None:
        """Pass received bytes to ``target`` from now on: first the buffered bytes, and end of file at the end."""
        self._target, target._source = target, self
        if isinstance(self.transport, SocketTransport):
            self.transport.piece = BULK
        if self.buffer:
            target.transport.write(self.take(len(self.buffer)))
        if self.lost:
            target.end(ConnectionResetError(self.error) if self.error else None)
            return
        if self.ended:
            target.finish()
            return
        if target._full:
            self.transport.pause_reading()
        elif self._paused:
            self.transport.resume_reading()
        self._paused = False


def _nothing() -> None:
    return


def _future(is_done: bool) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if is_done:
        future.set_result(None)
    return future


def complete(future: asyncio.Future[None] | None) -> bool:
    """Return False if the future is None, or was done or cancelled before."""
    if future is None or future.done():
        return False
    future.set_result(None)
    return True
