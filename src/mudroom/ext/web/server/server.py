"""The HTTP server on loopback, from its sockets to its end."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mudroom.errors import UsageError
from mudroom.ext.review.rows import fewer_collections
from mudroom.ext.web.server.guard import STRANGER, ForkServers, RequestGuard

HOST = "127.0.0.1"
if sys.platform == "win32":
    from mudroom.ext.windows.win32.tcp_peer import stranger_here as stranger_of

    _LAST = signal.SIGBREAK
    _ALONE = socket.SO_EXCLUSIVEADDRUSE
    _LINGER = struct.pack("HH", 1, 0)
else:
    from mudroom.ext.web.server.sandboxed_peer import sandboxed
    from mudroom.net.listeners.peer_user import Address, stranger_uid

    def stranger_of(ours: Address, theirs: Address) -> int | str | None:
        return sandboxed(ours, theirs) or stranger_uid(ours, theirs)

    _LAST = signal.SIGHUP
    _ALONE = socket.SO_REUSEADDR
    _LINGER = struct.pack("ii", 1, 0)
"""SIGHUP, or Ctrl-Break. The option that reserves a port for this process: with SO_REUSEADDR Windows lets any process
take a port that is in use ("Using SO_REUSEADDR and SO_EXCLUSIVEADDRUSE"). ``struct linger``: u_short there."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, _LAST)
_PATIENCE = 2
"""Seconds for open connections when the server ends."""
CONNECTIONS = 512
"""Maximum connections. For a further connection, another that waits for a request is closed: the oldest without any
request, else the longest idle, else the one whose request has been arriving longest."""
STRANGERS = 32
"""Connections from other users on this machine, out of ``CONNECTIONS``. They get public paths only; further ones are
closed. With a proxy, which may run as another user, the limit does not apply."""
HEAD_SECONDS = 10.0
"""Seconds for a request head to arrive."""
READ_SECONDS = 30.0
"""Seconds for a client to read some part of an answer."""
_NO_REQUEST, _IDLE, _HALF, _SERVED = range(4)
"""Connection states, in the order in which connections are closed. A connection whose request is being answered
stays."""
_WORDS = {errno.EADDRINUSE: "Address already in use", errno.EACCES: "Permission denied"}
"""As on Linux: Windows has longer words, and uses the second also for a port that another process has reserved."""
_TRIES = 20
"""Ports tried until one is free for both IPv4 and IPv6."""
HEAD_LIMIT = 32 << 10
"""Bytes in a request head. The longest path (PATH_MAX, 4096) has 5462 characters as an id."""


def listen(port: int) -> list[socket.socket]:
    """Return listening sockets on loopback only: 127.0.0.1, and ::1 if there is IPv6. ``port`` 0: any free port. Raise
    UsageError if the port is taken."""
    # both or none: names (localhost, mudroom.localhost) lead a browser to ::1 first, so another process that listens
    # there would receive the address with its code
    for _try in range(1 if port else _TRIES):
        first = _bind(socket.AF_INET, HOST, port)
        try:
            return [first, _bind(socket.AF_INET6, "::1", first.getsockname()[1])]
        except UsageError as error:
            if _has_no_family(error):
                return [first]
            first.close()
            refused = error
    raise refused


def _has_no_family(error: UsageError) -> bool:
    """Return whether this machine has no addresses in that family."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def _bind(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    try:
        # with its protocol: asyncio sets TCP_NODELAY only if it is given
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise _bind_error(error, host, port) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, _ALONE, 1)
        bound.bind((host, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise _bind_error(error, host, port) from error
    return bound


def _bind_error(error: OSError, host: str, port: int) -> UsageError:
    at = f"[{host}]:{port}" if ":" in host else f"port {port}"
    words = _WORDS.get(error.errno or 0, error.strerror)
    refusal = UsageError(f"{at}: {words}", "--port 0 takes any free one")
    refusal.__cause__ = error
    return refusal


class HttpConnection(H11Protocol):
    """A connection that passes the peer's user with each request. A connection that is silent, sends half a request, or
    does not read its answer is closed; uvicorn would wait without limit."""

    patience, reading, strangers, most = HEAD_SECONDS, READ_SECONDS, STRANGERS, CONNECTIONS
    waits_since = 0.0
    """The loop's time when the connection or its last request began."""
    other: int | str | None = None
    """Another user at the other end by uid, or in Windows's words, or a command in a sandbox. None if there is none."""
    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _tunnel: asyncio.Task[None] | None = None
    """The WebSocket to a fork's server that this connection has become."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.server is not None and self.server[1] is not None and self.client is not None:
            self.other = stranger_of((self.server[0], self.server[1]), self.client)
            self.app_state = {**self.app_state, STRANGER: self.other}
        if self.other is not None and self._count_strangers() > self.strangers:
            transport.abort()
            return
        self.waits_since = self.loop.time()
        if len(self.connections) > self.most:
            self._make_room()
        transport.set_write_buffer_limits(0)  # so that pause_writing is called for any unread byte
        self._head_timer = self.loop.call_later(self.patience, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._tunnel is not None:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()
        elif self._head_timer is None:
            self.waits_since = self.loop.time()
            self._head_timer = self.loop.call_later(self.patience, self.transport.abort)

    def _make_room(self) -> None:
        """Close the lowest-ranked other connection, unless it has a whole request."""
        others = [other for other in self.connections if isinstance(other, HttpConnection) and other is not self]
        last = min(others, key=HttpConnection.rank, default=None)
        if last is not None and last.rank()[0] < _SERVED:
            self.connections.discard(last)  # its transport reports the end in a later turn
            last.transport.abort()

    def rank(self) -> tuple[int, float]:
        """Return the sort key for closing connections: the lowest is closed first."""
        cycle: Any = self.cycle  # None before the first request, against its type
        if self._tunnel is not None:
            return _SERVED, self.waits_since
        if cycle is None:
            return _NO_REQUEST, self.waits_since
        if cycle.response_complete:
            return _IDLE, self.waits_since
        return (_HALF if cycle.more_body else _SERVED), self.waits_since

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == b"websocket" and self._fork() is not None

    def _fork(self) -> tuple[ForkServers, Any] | None:
        """Return the proxy to forks, and the fork that the request names."""
        forks: ForkServers | None = getattr(self.config.app, "forks", None)
        address = forks.address(self.headers) if forks is not None else None
        return None if forks is None or address is None else (forks, address)

    def handle_websocket_upgrade(self, _event: object) -> None:
        """Leave the connection to the proxy: what follows is no HTTP."""
        found = self._fork()
        assert found is not None
        forks, address = found
        self._stop_head_timer()
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        reader.feed_data(self.conn.trailing_data[0])
        writer = asyncio.StreamWriter(self.transport, protocol, reader, self.loop)
        self._tunnel = self.loop.create_task(forks.tunnel(dict(self.scope), address, reader, writer))
        self._tunnel.add_done_callback(lambda _task: self.connections.discard(self))

    def shutdown(self) -> None:
        if self._tunnel is not None:
            self.transport.abort()
        else:
            super().shutdown()

    def _count_strangers(self) -> int:
        return sum(
            isinstance(connection, HttpConnection) and connection.other is not None for connection in self.connections
        )

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_read_timer()

    def _start_read_timer(self, unsent: int) -> None:
        self._read_timer = self.loop.call_later(self.reading, self._check_progress, unsent)

    def _check_progress(self, unsent_before: int) -> None:
        """Close the connection if the client has read no byte since. A slow client may take its time for a long
        answer."""
        unsent = self.transport.get_write_buffer_size()
        if unsent < unsent_before:
            self._start_read_timer(unsent)
            return
        # otherwise the kernel would keep sending its buffer (tcp(7), socket(7))
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
        self.transport.abort()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(error)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Proxied(HttpConnection):
    strangers = CONNECTIONS


async def _nothing() -> None: ...


class _Server(uvicorn.Server):
    """Owner of ``_beside``: the event loop."""

    def __init__(
        self, config: uvicorn.Config, ending: Callable[[], None], beside: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        super().__init__(config)
        self._ending, self._make, self._beside = ending, beside, set[asyncio.Task[None]]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._beside.add(asyncio.create_task(self._make()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        for task in self._beside:
            task.cancel()
        await super().shutdown(sockets)


def serve(
    app: RequestGuard,
    listening: list[socket.socket],
    ready: Callable[[], None],
    ending: Callable[[], None] = lambda: None,
    beside: Callable[[], Coroutine[Any, Any, None]] = _nothing,
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, in the main thread. ``ready`` is called when connections are accepted and
    a signal ends the server cleanly. ``ending`` is called at the end, so that open streams can be closed. ``beside``:
    runs in the event loop meanwhile."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",  # clients' bad requests are not logged; our own faults are, by the guard
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http=_Proxied if app.proxied else HttpConnection,
        ws="none",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS + 1,
        h11_max_incomplete_event_size=HEAD_LIMIT,
        timeout_graceful_shutdown=_PATIENCE,
    )
    server: Any = _Server(config, ending, beside)

    def request_exit(_number: int, _frame: object) -> None:
        server.should_exit = True

    # uvicorn handles signals itself while it runs, then raises them again for the earlier handlers: these
    before = {number: signal.signal(number, request_exit) for number in _SIGNALS}
    try:
        with fewer_collections():
            ready()
            server.run(sockets=listening)
    finally:
        for socket_ in listening:
            socket_.close()
        for number, handler in before.items():
            signal.signal(number, handler)
