"""TLS over an open connection: received data is decrypted, written data is encrypted.

Rules of this file: ``_Tls`` stands between a transport and a ``Peer``, as a protocol for the transport and a transport
for the peer, so peers with TLS wait, are bounded and relay like any other. Bytes that were received before TLS was
started are not lost: they are read first. An end without close_notify is a broken connection, not a normal end (RFC
8446 6.1): truncated data must not look complete.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from mudroom.core.system.closing import ClosedOnError
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.transport import SocketTransport
from mudroom.typing import Any, cast

HANDSHAKE = 15.0
"""Seconds."""
_PIECE = 256 << 10
_CUT_OFF = "TLS was cut off, without its end being said"


async def start_tls(raw: Peer, context: ssl.SSLContext, *, server_side: bool, name: str | None = None) -> TlsConnection:
    """Start TLS over ``raw``, and take over its transport. Return the decrypted side. ``name``: the host that the
    server's certificate must be for.

    Raise ssl.SSLError, ConnectionError or TimeoutError; the connection is then closed, after an alert with the reason.
    """
    tls = _Tls(raw, context, server_side, name)
    with ClosedOnError(tls):
        async with asyncio.timeout(HANDSHAKE):
            await tls.start()
    return tls.peer


class TlsConnection(Peer):
    """A TLS connection's decrypted side."""

    protocol = ""
    """The protocol that ALPN selected; empty if none."""


class _Tls(asyncio.Protocol):
    """A protocol to the outside, a transport to the inside; it implements the transport methods that a ``Peer``
    uses."""

    def __init__(self, raw: Peer, context: ssl.SSLContext, server_side: bool, name: str | None) -> None:
        self._raw = raw
        self._transport = raw.transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=name)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_open = False
        self._is_paused = False
        """Whether the peer has paused reading."""
        self._is_held = False
        """Whether the transport was paused for that."""
        self._sent_end = False
        self._undecrypted = 0
        """Received bytes that are charged to the account."""
        self.peer = TlsConnection(raw.account)
        self.peer.connection_made(cast("asyncio.Transport", self))

    async def start(self) -> None:
        self._transport.set_protocol(self)
        if isinstance(self._transport, SocketTransport):
            self._transport.piece = _PIECE
        self._incoming.write(self._raw.take(len(self._raw.buffer)))
        if not self._transport.is_closing() and not self._raw.ended:
            self._transport.resume_reading()
        self._handshake()
        if self._raw.ended:
            self.connection_lost(None) if self._raw.lost else self.eof_received()
        await self._ready

    def _handshake(self) -> None:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()  # send the alert
            self._fail(error)
            return
        self._is_open = True
        self.peer.protocol = self._object.selected_alpn_protocol() or ""
        self._flush()
        if not self._ready.done():
            self._ready.set_result(None)
        self._read()

    def _fail(self, error: Exception) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _read(self) -> None:
        """Decrypt the received data, as far as the peer accepts it."""
        peer = self.peer
        try:
            while not self._is_paused and not peer.ended:
                data = self._object.read(_PIECE)
                if not data:
                    peer.eof_received()
                    return
                peer.data_received(data)
        except ssl.SSLWantReadError:
            self._flush()  # send TLS's own replies
            if self._is_held and not self._is_paused and not self._transport.is_closing():
                self._is_held = False
                self._transport.resume_reading()
        except ssl.SSLZeroReturnError:
            peer.eof_received()
        except ssl.SSLError as error:
            self._flush()
            is_end = isinstance(error, ssl.SSLEOFError) or "EOF" in str(error.reason)
            self._break(ConnectionError(_CUT_OFF if is_end else f"TLS: {error.reason}"))
        finally:
            self._charge()

    def _charge(self) -> None:
        """Charge the received data that is not decrypted yet."""
        before, self._undecrypted = self._undecrypted, self._incoming.pending
        self.peer.account.recharge(before, self._undecrypted)

    def _break(self, error: Exception) -> None:
        if not self.peer.lost:
            self.peer.connection_lost(error)
        self._transport.close()

    # --- called by the loop ---

    def data_received(self, data: bytes | memoryview) -> None:
        self._incoming.write(data)
        if self._is_open:
            self._read()
        else:
            self._handshake()
            self._charge()

    def eof_received(self) -> bool:
        self._raw.eof_received()
        self._incoming.write_eof()
        if self._is_open:
            self._read()
        else:
            self._fail(ConnectionError("it ended within the TLS handshake"))
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionError("the connection was lost within the TLS handshake"))
        if not self.peer.lost:
            self.peer.connection_lost(error)
        if not self._raw.lost:
            self._raw.connection_lost(error)

    def pause_writing(self) -> None:
        self.peer.pause_writing()

    def resume_writing(self) -> None:
        self.peer.resume_writing()

    # --- called by the peer ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self._sent_end or self._transport.is_closing():
            return
        try:
            self._object.write(data)
        except ssl.SSLError as error:
            self._break(ConnectionError(f"TLS: {error.reason}"))
            return
        self._flush()

    def pause_reading(self) -> None:
        self._is_paused = self._is_held = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume the transport only when all its data is decrypted and accepted; otherwise it would accumulate."""
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self._read)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send close_notify; data from the other side is still read."""
        self._send_end()
        if not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        self._send_end()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _send_end(self) -> None:
        if self._sent_end or not self._is_open:
            return
        self._sent_end = True
        with suppress(ssl.SSLError, ValueError):  # close_notify is sent; the other side's is not awaited
            self._object.unwrap()
        self._flush()
