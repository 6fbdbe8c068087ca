"""Inbound listener: forward a port on the host's loopback to a server inside a sandbox, while its command lives.

All users of the machine share the loopback. Unless all users are meant, only this user's connections are forwarded: the
kernel tells whose a connection is, before its first byte is read (``peer_user.py``).

A child process enters the command's namespaces once and creates sockets there on request. The sockets are connected and
relayed here, outside (a socket belongs to the namespace in which it was created). It is a separate process because only
a single-threaded process may enter a user namespace (setns(2)), and because it cannot leave again.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from mudroom.errors import MudroomError
from mudroom.net.listeners.peer_user import Address, stranger

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
_CHUNK = 1 << 16
_LOOPBACKS = ("::ffff:127.0.0.1", "::1")
"""A server listens on either or both: ``localhost`` may be either, and Node prefers the second."""


class SocketMaker:
    """Creates sockets in a command's network namespace."""

    def __init__(self, namespaces: Sequence[int]) -> None:
        """``namespaces``: descriptors for the user and the network namespace; the caller closes them. Raise
        MudroomError if they cannot be entered."""
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            _make_sockets(theirs, namespaces)
        theirs.close()
        reply = self._ours.recv(16)
        if reply != b"ready":
            self.close()
            reason = os.strerror(int(reply)) if reply else "the process that enters it has ended"
            raise MudroomError(f"the command's network cannot be entered: {reason}", "mudroom ps shows whether it runs")

    def make(self) -> socket.socket:
        """Return a new socket. Raise MudroomError if the child process has ended."""
        descriptors: list[int] = []
        with suppress(OSError):  # sending to a process that has ended
            self._ours.send(b"one")
            _data, descriptors, _flags, _address = socket.recv_fds(self._ours, 16, 1)
        if not descriptors:
            raise MudroomError("the command's network cannot be entered any more", "run the line again")
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        self._ours.close()
        os.waitpid(self._pid, 0)


def _make_sockets(channel: socket.socket, namespaces: Sequence[int]) -> None:
    """Run the child process to its end."""
    try:
        # The parent waits for some of the inherited descriptors to close, so all others are closed here.
        kept = 2
        for descriptor in sorted((channel.fileno(), *namespaces)):
            os.closerange(kept + 1, descriptor)
            kept = descriptor
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        libc = ctypes.CDLL(None, use_errno=True)
        for descriptor, kind in zip(namespaces, (CLONE_NEWUSER, CLONE_NEWNET), strict=True):
            if libc.setns(descriptor, kind) < 0:
                channel.send(b"%d" % ctypes.get_errno())
                os._exit(1)
        channel.send(b"ready")
        while channel.recv(16):
            with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as made_socket:
                made_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                socket.send_fds(channel, [b"one"], [made_socket.fileno()])
    finally:
        os._exit(0)


def _ignore(_whose: str) -> None:
    """Refuse without a message."""


class InboundListener:
    """Serves a port on the host's loopback until the command has ended."""

    def __init__(
        self, maker: SocketMaker, inside: int, outside: int, refused: Callable[[str], None] | None = _ignore
    ) -> None:
        """``refused`` is called with the owner of a refused connection. None: all users' connections are forwarded."""
        self._maker, self._inside, self._outside, self._refused = maker, inside, outside, refused
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

        try:
            server = await asyncio.start_server(serve, "127.0.0.1", self._outside)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            hint = f"mudroom net open {self._inside} --as 0 takes any that is free"
            raise MudroomError(f"port {self._outside} of this machine is taken", hint) from error
        opened(server.sockets[0].getsockname()[1])
        async with server:
            await finished.wait()
        loop.remove_reader(gone)
        if self._failures:
            raise self._failures[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._refused is not None and (whose := _stranger(writer)):
                writer.transport.abort()
                self._refused(whose)
                return
            far = await self._connect()
            if far is None:
                return
            far_reader, far_writer = await asyncio.open_connection(sock=far)
            try:
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            finally:
                far_writer.close()
        finally:
            writer.close()

    async def _connect(self) -> socket.socket | None:
        """Return a connected socket, or None if no server listens inside."""
        loop = asyncio.get_running_loop()
        for address in _LOOPBACKS:
            inner = self._maker.make()
            inner.setblocking(False)
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
