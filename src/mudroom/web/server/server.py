"""A server on loopback, from its socket to its end."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mudroom.errors import UsageError
from mudroom.review.rows import fewer_collections
from mudroom.web.server.guard import STRANGER
from mudroom.web.server.peer import stranger

if TYPE_CHECKING:
    from mudroom.web.server.guard import RequestGuard

HOST = "127.0.0.1"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = 2
"""Seconds that open connections have at the end."""
CONNECTIONS = 512
"""At a time; who comes later is told to come again."""
STRANGERS = 32
"""Of them those of other users of this machine, who get what is public: who comes later is cut off. Where a proxy is
named it may be another user, and all are its own."""
HEAD_SECONDS = 10.0
"""In which the head of a request has to be here."""
READ_SECONDS = 30.0
"""In which something of what is answered has to be read."""
_TRIES = 20
"""Ports that are tried until one is free in both families."""
HEAD_LIMIT = 32 << 10
"""Bytes of it. The longest path there is (PATH_MAX, 4096) is 5462 characters as an id."""


def listen(port: int) -> list[socket.socket]:
    """Sockets on loopback and nowhere else: 127.0.0.1, and ::1 where there is IPv6. ``port`` 0: any free one.

    Both or none: names (``localhost``, ``mudroom.localhost``) lead a browser to ::1 first, so whoever had that would be
    sent the address with its code. Raises UsageError if the port cannot be had."""
    for _try in range(1 if port else _TRIES):
        first = _bound(socket.AF_INET, HOST, port)
        try:
            return [first, _bound(socket.AF_INET6, "::1", first.getsockname()[1])]
        except _Without:
            return [first]
        except UsageError as error:
            first.close()
            taken = error
    raise taken


class _Without(UsageError):
    """This machine has no such addresses."""


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    try:
        # with its protocol: asyncio has answers go out at once (TCP_NODELAY) only where it is named
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise _cannot(error, host, port) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise _cannot(error, host, port) from error
    return made


def _cannot(error: OSError, host: str, port: int) -> UsageError:
    kind = _Without if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) else UsageError
    at = f"[{host}]:{port}" if ":" in host else f"port {port}"
    return kind(f"{at}: {error.strerror}", "--port 0 takes any free one")


class HttpConnection(H11Protocol):
    """Whose it is is said with each request. One that says nothing, or half a request for ever, or that does not read
    what it is answered, is closed: uvicorn waits for as long as it takes."""

    patience, reading, strangers = HEAD_SECONDS, READ_SECONDS, STRANGERS
    other: int | None = None
    """The user whose it is, if that is somebody else."""
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.server is not None and self.server[1] is not None and self.client is not None:
            self.other = stranger((self.server[0], self.server[1]), self.client)
            self.app_state = {**self.app_state, STRANGER: self.other}
        if self.other is not None and self._others() > self.strangers:
            transport.abort()
            return
        transport.set_write_buffer_limits(0)  # so that we are told of anything that is not taken
        self._late = self.loop.call_later(self.patience, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._late is None:
            self._late = self.loop.call_later(self.patience, self.transport.abort)

    def _others(self) -> int:
        return sum(isinstance(one, HttpConnection) and one.other is not None for one in self.connections)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read()

    def _watch(self, left: int) -> None:
        self._unread = self.loop.call_later(self.reading, self._look, left)

    def _look(self, before: int) -> None:
        """Slow is not stuck: it may take what it needs for a long answer."""
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._watch(left)
            return
        # or the kernel would go on offering what it has (tcp(7), socket(7))
        line = self.transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, error: Exception | None) -> None:
        self._stop()
        self._read()
        super().connection_lost(error)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Proxied(HttpConnection):
    strangers = CONNECTIONS


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)


def serve(
    app: RequestGuard,
    listening: list[socket.socket],
    ready: Callable[[], None],
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Until SIGINT, SIGTERM or SIGHUP. In the main thread. ``ready`` is called when connections are accepted, and a
    signal ends it cleanly; ``ending`` when it ends, so that who holds a connection open can let go of it."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",  # a stranger's bad requests are no news, and our own faults are told by the guard
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http=_Proxied if app.proxied else HttpConnection,
        ws="none",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEAD_LIMIT,
        timeout_graceful_shutdown=_PATIENCE,
    )
    server: Any = _Server(config, ending)

    def end(_number: int, _frame: object) -> None:
        server.should_exit = True

    # uvicorn heeds signals itself while it runs, and raises them again for those who were there before: us
    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        with fewer_collections():
            ready()
            server.run(sockets=listening)
    finally:
        for one in listening:
            one.close()
        for number, handler in before.items():
            signal.signal(number, handler)
