"""The way in: a server that runs inside, on the host's loopback, for as long as its command lives.

A child process enters the command's namespaces once and makes sockets there, as many as are asked for; the sockets are
connected and relayed here, outside (a socket belongs to the namespace it was made in). It is its own process because
only one without threads may enter a user namespace (setns(2)), and because there is no way back.
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

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
_CHUNK = 1 << 16
_LOOPBACKS = ("::ffff:127.0.0.1", "::1")
"""A server listens on one of them or on both: ``localhost`` is either, and Node prefers the second."""


class Maker:
    """Sockets in a command's network namespace."""

    def __init__(self, namespaces: Sequence[int]) -> None:
        """``namespaces``: user and network, as descriptors, not closed here. Raises MudroomError if they cannot be
        entered."""
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            _make_sockets(theirs, namespaces)
        theirs.close()
        word = self._ours.recv(16)
        if word != b"ready":
            self.close()
            reason = os.strerror(int(word)) if word else "it ended"
            raise MudroomError(f"the command's network cannot be entered: {reason}")

    def make(self) -> socket.socket:
        self._ours.send(b"one")
        _data, descriptors, _flags, _address = socket.recv_fds(self._ours, 16, 1)
        if not descriptors:
            raise MudroomError("the command's network cannot be entered any more")
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        self._ours.close()
        os.waitpid(self._pid, 0)


def _make_sockets(channel: socket.socket, namespaces: Sequence[int]) -> None:
    """In the child, to its end. It holds nothing of its parent's open: that waits for the ends of some."""
    try:
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
            with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as made:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                socket.send_fds(channel, [b"one"], [made.fileno()])
    finally:
        os._exit(0)


class Ingress:
    """Serves on the host's loopback until ``lives`` says that the command is gone."""

    def __init__(self, maker: Maker, inside: int, outside: int) -> None:
        self._maker, self._inside, self._outside = maker, inside, outside

    def run(self, gone: int, opened: Callable[[int], None]) -> None:
        """Block until the descriptor ``gone`` is at its end. ``opened`` is told the port. Raises MudroomError if the
        port is taken."""
        asyncio.run(self._run(gone, opened))

    async def _run(self, gone: int, opened: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        loop.add_reader(gone, over.set)
        try:
            server = await asyncio.start_server(self._serve, "127.0.0.1", self._outside)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise MudroomError(f"port {self._outside} of this machine is taken", "choose another with --as") from error
        opened(server.sockets[0].getsockname()[1])
        async with server:
            await over.wait()
        loop.remove_reader(gone)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
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
        """None if nothing listens inside."""
        loop = asyncio.get_running_loop()
        for address in _LOOPBACKS:
            made = self._maker.make()
            made.setblocking(False)
            try:
                await loop.sock_connect(made, (address, self._inside))
                return made
            except OSError:
                made.close()
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):  # the other direction ends as well, and that is all there is to say
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
