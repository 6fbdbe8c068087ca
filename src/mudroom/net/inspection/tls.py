"""TLS over a connection that has begun: what a peer sends is decrypted, what is written to it is encrypted.

Rules of this file: it stands between a transport and a ``Peer``, as a protocol for the one and a transport for the
other, so that all that is done with peers (waiting, bounds, relaying) is the same with TLS. Bytes that came before TLS
was started are not lost: they are the first that are read. An end without close_notify is a connection that broke, not
one that ended (RFC 8446 6.1): what was cut off must not look whole.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from mudroom.net.gate.peer import Peer

HANDSHAKE = 15.0
"""Seconds."""
_PIECE = 256 << 10
_CUT_OFF = "TLS was cut off, without its end being said"


async def secure(raw: Peer, context: ssl.SSLContext, *, server_side: bool, name: str | None = None) -> TlsConnection:
    """A peer that speaks TLS over ``raw``, whose transport it takes over. ``name``: whom the server must prove to be.

    Raises ssl.SSLError, ConnectionError or TimeoutError; the connection is then closed, the reason having been said."""
    tls = _Tls(raw, context, server_side, name)
    try:
        async with asyncio.timeout(HANDSHAKE):
            await tls.start()
    except BaseException:
        tls.close()
        raise
    return tls.peer


class TlsConnection(Peer):
    """The inside of TLS."""

    protocol = ""
    """What was agreed on (ALPN); empty: nothing."""


class _Tls(asyncio.Protocol):
    """Outside a protocol, inside a transport: as much of one as a ``Peer`` uses."""

    def __init__(self, raw: Peer, context: ssl.SSLContext, server_side: bool, name: str | None) -> None:
        self._raw = raw
        self._transport = raw.transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=name)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_open = False
        self._is_paused = False
        """By the peer."""
        self._is_held = False
        """The transport is, for that."""
        self._said_end = False
        self.peer = TlsConnection()
        self.peer.connection_made(cast("asyncio.Transport", self))

    async def start(self) -> None:
        self._transport.set_protocol(self)
        self._incoming.write(self._raw.take(len(self._raw.buffer)))
        if not self._transport.is_closing() and not self._raw.ended:
            self._transport.resume_reading()
        self._shake()
        if self._raw.ended:
            self.connection_lost(None) if self._raw.lost else self.eof_received()
        await self._ready

    def _shake(self) -> None:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()  # the alert
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
        """Decrypt what is there, as far as the peer takes it."""
        peer = self.peer
        try:
            while not self._is_paused and not peer.ended:
                data = self._object.read(_PIECE)
                if not data:
                    peer.eof_received()
                    return
                peer.data_received(data)
        except ssl.SSLWantReadError:
            self._flush()  # what TLS itself had to answer
            if self._is_held and not self._is_paused and not self._transport.is_closing():
                self._is_held = False
                self._transport.resume_reading()
        except ssl.SSLZeroReturnError:
            peer.eof_received()
        except ssl.SSLError as error:
            self._flush()
            is_end = isinstance(error, ssl.SSLEOFError) or "EOF" in str(error.reason)
            self._break(ConnectionError(_CUT_OFF if is_end else f"TLS: {error.reason}"))

    def _break(self, error: Exception) -> None:
        if not self.peer.lost:
            self.peer.connection_lost(error)
        self._transport.close()

    # --- what the loop calls ---

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._is_open:
            self._read()
        else:
            self._shake()

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

    # --- what the peer calls ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self._said_end or self._transport.is_closing():
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
        """The transport goes on when all that it brought has been decrypted and taken: else it would pile up."""
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self._read)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Say that nothing follows; what the other says is still read."""
        self._say_end()
        if not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        self._say_end()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _say_end(self) -> None:
        if self._said_end or not self._is_open:
            return
        self._said_end = True
        try:
            self._object.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # it has been said; that the other has not said it yet, or still talks, is no concern
        self._flush()
