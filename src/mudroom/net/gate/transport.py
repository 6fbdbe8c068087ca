"""A transport over a connected socket, with the part of ``asyncio.Transport`` that the gate's protocols use.

Rules of this file:
1. All sockets are read into one buffer. ``data_received`` gets a view of it, valid during the call only: bytes that
   pass through are copied from the kernel and into it, and nowhere else.
2. If a socket does not take all bytes, the rest is sent later. Its protocol is told to pause at once, so at most the
   rest of one read is ever held: ``BULK`` bytes, or less if the connection's account has less room
   (``core/network/budget.py``).
3. Each selector report causes one read, of at most ``PIECE`` bytes while another connection moves small messages: a
   fast connection does not keep those waiting.
4. A protocol that raises an exception loses its connection.
"""

from __future__ import annotations

import asyncio
import socket
import time

from mudroom.core.network.budget import FLOOR, Account, unlimited
from mudroom.net.gate.event_loop import READABLE, WRITABLE, sockets
from mudroom.typing import Any

PIECE, BULK = 64 << 10, 512 << 10
"""Bytes in a read: for the gate itself, and to pass on."""
CALM = 0.1
"""Seconds after the last small message until another connection's reads are long again."""

_BUFFER = memoryview(bytearray(BULK))
UNCHARGED = unlimited()
"""The account for connections that belong to no command yet: they are being made."""


class SocketTransport(asyncio.Transport):
    """Owns a connected, non-blocking socket. ``protocol``: an ``asyncio.Protocol`` that accepts views."""

    small: SocketTransport | None = None
    """The transport that was last to read a small message, at ``small_at``."""
    small_at = 0.0

    def __init__(self, channel: socket.socket, protocol: asyncio.Protocol) -> None:
        super().__init__({"socket": channel})
        self.piece = PIECE
        """Maximum bytes in a read."""
        self.count = 0
        """Reads that found bytes or the end of file."""
        self.account: Account = getattr(protocol, "account", UNCHARGED)
        """Charged for the unsent bytes. Its room limits a read."""
        self._channel = channel
        self._descriptor = channel.fileno()
        self._protocol: Any = protocol
        self._sockets = sockets()
        self._unsent = bytearray()
        self._is_paused = False
        self._is_ended = False
        """Whether the other end sends no more."""
        self._is_finishing = False
        """Whether end of file follows the unsent bytes."""
        self._is_closing = False
        self._is_released = False
        self._watched = READABLE
        self._sockets.watch(self._descriptor, READABLE, self._report)
        protocol.connection_made(self)

    # --- the selector's part ---

    def _report(self, events: int) -> bool:
        if self._unsent and events & ~READABLE:
            self._send_unsent()
            if events & ~WRITABLE:
                self.receive()
            return False
        return self.receive()

    def receive(self) -> bool:
        """Read once, if the protocol wants data and some is available. Return the result of ``data_received``: whether
        bytes were passed on, without any other work."""
        if self._is_paused or self._is_ended or self._is_closing:
            return False
        shared, now, most = SocketTransport, time.monotonic(), self.piece
        if most > PIECE and now - shared.small_at < CALM and shared.small is not self:
            most = PIECE
        account = self.account
        budget = account.share.budget
        if budget.held > budget.easy:
            most = min(most, max(account.room(), FLOOR))
        try:
            length = self._channel.recv_into(_BUFFER, most)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._lose(error)
            return False
        self.count += 1
        if 0 < length < PIECE:
            shared.small, shared.small_at = self, now
        try:
            if length:
                return self._protocol.data_received(_BUFFER[:length]) is True
            self._is_ended = True
            self._watch()
            self._protocol.eof_received()
        except Exception as error:  # noqa: BLE001 - a fault of the gate: no further byte may pass
            self._lose(error)
        return False

    def _send_unsent(self) -> None:
        try:
            sent = self._channel.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        del self._unsent[:sent]
        self.account.free(sent)
        if self._unsent:
            return
        if self._is_closing:
            self._lose(None)
            return
        self._watch()
        if self._is_finishing:
            self._shut_down()
        self._protocol.resume_writing()

    def _watch(self) -> None:
        """Watch for the events that are wanted now."""
        reads = not (self._is_paused or self._is_ended or self._is_closing)
        events = (READABLE if reads else 0) | (WRITABLE if self._unsent else 0)
        if self._is_released or events == self._watched:
            return
        # A watched socket without wanted events would report its end forever.
        if not events:
            self._sockets.forget(self._descriptor)
        elif not self._watched:
            self._sockets.watch(self._descriptor, events, self._report)
        else:
            self._sockets.change(self._descriptor, events)
        self._watched = events

    def _lose(self, error: Exception | None) -> None:
        """Close the socket now, and tell the protocol after the current reports."""
        self._is_closing = True
        if self._is_released:
            return
        self._is_released = True
        if self._watched:
            self._sockets.forget(self._descriptor)
        self._channel.close()
        if self._unsent:
            self.account.free(len(self._unsent))
            self._unsent.clear()
        if SocketTransport.small is self:
            SocketTransport.small = None
        self._sockets.defer(lambda: self._protocol.connection_lost(error))

    def _shut_down(self) -> None:
        try:
            self._channel.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the connection is lost; the next read reports it

    # --- the protocol's part ---

    def charge_to(self, account: Account) -> None:
        if self._unsent:
            self.account.free(len(self._unsent))
            account.hold(len(self._unsent))
        self.account = account

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing or self._is_finishing or not data:
            return
        sent, is_first = 0, not self._unsent
        if is_first:
            try:
                sent = self._channel.send(data)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._lose(error)
                return
            if sent == len(data):
                return
        self._unsent += memoryview(data)[sent:]
        self.account.hold(len(data) - sent)
        if is_first:
            self._watch()
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Half-close after the unsent bytes."""
        if self._is_closing or self._is_finishing:
            return
        self._is_finishing = True
        if not self._unsent:
            self._shut_down()

    def close(self) -> None:
        """Close after the unsent bytes."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._unsent:
            self._watch()
        else:
            self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True
        self._watch()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._watch()

    def is_reading(self) -> bool:
        return not (self._is_paused or self._is_ended or self._is_closing)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol
