"""Inbound listener: forward a port on the host's loopback to a server inside a sandbox, while its command lives.

All users of the machine share the loopback. Unless all users are meant, only this user's connections are forwarded: the
kernel tells whose a connection is, before its first byte is read (``peer_user.py``).

The sockets in the command's network namespace come from a process inside (``late_socket.py``). They are connected and
relayed here, outside.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from mudroom.errors import MudroomError
from mudroom.net.listeners.late_socket import LOOPBACKS
from mudroom.net.listeners.peer_user import Address, stranger

_CHUNK = 1 << 16


def _ignore(_whose: str) -> None:
    """Refuse without a message."""


class InboundListener:
    """Serves a port on the host's loopback until the command has ended."""

    def __init__(
        self,
        make: Callable[[bytes], socket.socket],
        inside: int,
        outside: Sequence[int],
        refused: Callable[[str], None] | None = _ignore,
    ) -> None:
        """``make`` returns a non-blocking socket inside, of a family from ``LOOPBACKS``, or raises OSError.
        ``outside``: the ports of the host, of which the first free one is taken; 0 is any that is free.
        ``refused`` is called with the owner of a refused connection. None: all users' connections are forwarded."""
        self._make, self._inside, self._outside, self._refused = make, inside, outside, refused
        self._failures: list[MudroomError] = []
        """Failures to make a socket; after the first, no more can be made."""

    def run(self, gone: int, opened: Callable[[int], None]) -> None:
        """Serve until the descriptor ``gone`` reports end of file. ``opened`` is called with the port. Raise
        MudroomError if the port is taken, or no socket can be made any more."""
        asyncio.run(self._run(gone, opened))

    async def _run(self, gone: int, opened: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        finished = asyncio.Event()
        loop.add_reader(gone, finished.set)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._serve(reader, writer)
            except MudroomError as error:
                self._failures.append(error)
                finished.set()

        for left, outside in reversed(list(enumerate(reversed(self._outside)))):
            try:
                server = await asyncio.start_server(serve, "127.0.0.1", outside)
                break
            except OSError as error:
                if left and error.errno in (errno.EADDRINUSE, errno.EACCES):
                    continue
                if error.errno != errno.EADDRINUSE:
                    raise
                hint = f"mudroom net open {self._inside} --as 0 takes any that is free"
                raise MudroomError(f"port {outside} of this machine is taken", hint) from error
        opened(server.sockets[0].getsockname()[1])
        async with server:
            await finished.wait()
        loop.remove_reader(gone)
        if self._failures:
            raise self._failures[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            if self._refused is not None and (whose := _stranger(writer)):
                writer.transport.abort()
                self._refused(whose)
                return
            far = await self._connect()
            if far is None:
                return
            far_reader, far_writer = await asyncio.open_connection(sock=far)
            with closing(far_writer):
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    async def _connect(self) -> socket.socket | None:
        """Return a connected socket, or None if no server listens inside. Raise MudroomError if no socket can be
        made."""
        loop = asyncio.get_running_loop()
        for family, address in LOOPBACKS:
            try:
                inner = self._make(family)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    continue  # no IPv6 there
                raise MudroomError("the command's network cannot be entered any more", "run the line again") from error
            try:
                await loop.sock_connect(inner, (address, self._inside))
                return inner
            except OSError:
                inner.close()
        return None


def _stranger(writer: asyncio.StreamWriter) -> str:
    """Return the connection's owner, for a message; empty if it is this user."""
    whose = stranger(*_addresses(writer))
    # It must still be connected: another user may have reset it after some bytes, and a connection of this user's may
    # have the same port by now.
    try:
        writer.get_extra_info("socket").getpeername()
    except OSError:
        return whose or "a process that has gone"
    return whose


def _addresses(writer: asyncio.StreamWriter) -> tuple[Address, Address]:
    """Return a connection's own address, and the other end's."""
    return writer.get_extra_info("sockname"), writer.get_extra_info("peername")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # the other direction ends as well. ENOTCONN, from shutdown(2), is no ConnectionError
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
