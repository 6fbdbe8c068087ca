"""Parts of the servers in the gate that stand in a held host's place: the question to the host process.

Rules of these servers (``ssh_server.py``, ``mail_server.py``): they speak to the sandbox, and never to the host: the
user's own ssh does, which the host process starts (``ssh_client.py``), and the release. A client is told of success
only when its effect is durable.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import msgspec

from mudroom.core.network.host_pattern import LOCALHOST
from mudroom.core.network.inspection import Inspection
from mudroom.ext.effects.message import LONGEST, HeldAnswer, HeldQuestion
from mudroom.net.gate.dial import adopt
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.peer import Peer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def admit(client: Peer, exchange: Exchange, library: str, extra: str, memory: int) -> Inspection:
    """Load a protocol's library, and charge the connection's memory. Raise RefusedExchange."""
    try:
        await asyncio.to_thread(__import__, library)  # it takes the time of a hundred requests
    except ImportError:
        raise exchange.refuse(f"this is held with {library}: pip install 'mudroom[{extra}]'") from None
    inspection = exchange.guard.inspection
    if inspection is None or not await exchange.guard.reserve(client, memory):
        raise exchange.refuse("its rule holds, and its command's connections hold all that they may")
    return inspection


def pair() -> tuple[Peer, socket.socket]:
    """Return the two ends of a connection within the gate: for a relay, and for a protocol."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    return adopt(ours), theirs


def named(exchange: Exchange) -> str:
    """Return the host as its rule names it: a client of ``localhost`` comes to one of its addresses."""
    rule = exchange.holding
    return LOCALHOST if rule is not None and rule.pattern == LOCALHOST else exchange.host


@asynccontextmanager
async def desk(exchange: Exchange, question: HeldQuestion, host: str = "") -> AsyncIterator[Streams]:
    """Ask the host process, and hold the connection open. ``host``: as the client names it; empty: as the rule does.
    Raise ForkUnreachable, OSError, or ValueError if the question is too long."""
    dials, host, line = exchange.guard.dials, host or named(exchange), msgspec.json.encode(question) + b"\n"
    if len(line) > LONGEST:
        raise ValueError("headers that are so long")
    connection = await dials.dial(host, exchange.port, "")
    try:
        reader, writer = await asyncio.open_connection(sock=connection.socket)
        with closing(writer):
            writer.write(line)
            await writer.drain()
            yield reader, writer
    finally:
        dials.left(host)


def decoded(answer: bytes) -> HeldAnswer:
    """Raise ValueError if it is none."""
    try:
        return msgspec.json.decode(answer, type=HeldAnswer)
    except msgspec.DecodeError:
        raise ValueError("it could not be stored") from None
