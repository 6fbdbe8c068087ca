"""A guard's connections to servers in other forks, which the host makes.

Rules of this file: the host decides about each connection, since this process has read untrusted data. Open connections
between two forks are limited; further ones are refused, and counted like refusals (``core/network/flow_log.py``).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from mudroom.core.network.fork_host import ForkDial
from mudroom.net.protocol import wire
from mudroom.typing import NamedTuple

DIAL_TIMEOUT = 15.0
"""Seconds until a connection to another fork is given up."""
MAX_DIALS = 16
"""Connections to other forks that are being made at the same time; further ones wait."""
MOST_PAIR = 128
"""Maximum open connections from a command to one other fork."""


class ForkUnreachable(Exception):
    """There is no connection to a server in another fork."""

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        """``is_refused``: a fork does not consent, or there are too many connections."""
        super().__init__(reason)
        self.is_refused = is_refused


class ForkConnection(NamedTuple):
    """A connection that the host has made to a server in another fork."""

    socket: socket.socket
    rule: str
    http: bool
    """Only plain HTTP/1 may be sent."""


class ForkDials:
    def __init__(self, send: Callable[[wire.ToHost], None], identity: Callable[[], int]) -> None:
        """``send``: sends to the host. ``identity``: returns the number for the next request."""
        self._send, self._identity = send, identity
        self._answers: dict[int, asyncio.Future[ForkConnection]] = {}
        self._slots = asyncio.Semaphore(MAX_DIALS)
        self._pairs: dict[str, int] = {}
        """Open connections by the other fork's host name, including those that are being made."""

    async def dial(self, host: str, port: int, path: str) -> ForkConnection:
        """Return a connection that the host has made to a server in another fork. Call ``left`` when it is closed.
        Raise ForkUnreachable."""
        if self._pairs.get(host, 0) >= MOST_PAIR:
            raise ForkUnreachable(f"{MOST_PAIR} connections lead there already", is_refused=True)
        self._pairs[host] = self._pairs.get(host, 0) + 1
        identity, answer = self._identity(), asyncio.get_running_loop().create_future()
        connection: ForkConnection | None = None
        try:
            async with asyncio.timeout(DIAL_TIMEOUT), self._slots:
                self._answers[identity] = answer
                self._send(wire.DialMessage(ForkDial(identity, host, port, path)))
                connection = await answer
                return connection
        except TimeoutError:
            raise ForkUnreachable("there was no answer in time") from None
        finally:
            self._answers.pop(identity, None)
            if connection is None:
                self.left(host)

    def left(self, host: str) -> None:
        """Note that a connection to another fork has ended."""
        self._pairs[host] -= 1
        if not self._pairs[host]:
            del self._pairs[host]

    def answered(self, message: wire.DialledMessage, connections: list[socket.socket]) -> None:
        answer = self._answers.get(message.identity)
        if answer is not None and not answer.done() and not message.error and connections:
            connections[0].setblocking(False)
            answer.set_result(ForkConnection(connections.pop(0), message.rule, message.http))
        elif answer is not None and not answer.done():
            reason = message.error or "there is no connection"
            answer.set_exception(ForkUnreachable(reason, is_refused=message.is_refused))
        for connection in connections:
            connection.close()
