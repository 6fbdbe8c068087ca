"""A server on loopback, from its socket to its end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn

from mudroom.errors import UsageError

if TYPE_CHECKING:
    from mudroom.web.guard import Guard

HOST = "127.0.0.1"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = 2
"""Seconds that open connections have at the end."""


def listen(port: int) -> socket.socket:
    """A socket on loopback and nowhere else. ``port`` 0: any free one. Raises UsageError if it cannot be had."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise UsageError(f"port {port}: {error.strerror}", "--port 0 takes any free one") from error
    return made


def serve(app: Guard, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Until SIGINT, SIGTERM or SIGHUP. In the main thread. ``ready`` is called when connections are accepted, and a
    signal ends it cleanly."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_PATIENCE,
    )
    server: Any = uvicorn.Server(config)

    def end(_number: int, _frame: object) -> None:
        server.should_exit = True

    # uvicorn heeds signals itself while it runs, and raises them again for those who were there before: us
    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        ready()
        server.run(sockets=[listening])
    finally:
        listening.close()
        for number, handler in before.items():
            signal.signal(number, handler)
