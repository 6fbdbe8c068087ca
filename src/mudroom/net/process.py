"""The gate process: serves the commands' listeners, each command by its guard, until the host is gone.

Rules of this file: descriptor 0 is the host's control socket. When it closes, the process ends, and every connection
with it. The process uses no other part of the machine: no environment, no file, no home.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

import msgspec

from mudroom.core.network.budget import MemoryBudget
from mudroom.net.gate.event_loop import READABLE, GateLoop, sockets
from mudroom.net.gate.guard import MOST_HELD, Guard
from mudroom.net.gate.resolve import Resolver, resolve
from mudroom.net.gate.transport import SocketTransport
from mudroom.net.listeners.accept import FIND, ListenerClient, ListenerContext, serve_of
from mudroom.net.listeners.responder import Responder
from mudroom.net.protocol import wire
from mudroom.net.protocol.synthetic import Synthetic

# --- Accept a listener's connections ---
# Rules of this file: one connection for each report, so a crowd at one listener does not keep the others waiting. A
# connection is read at once: most clients speak first, and their first bytes are there by then.


_RETRY = 1.0
"""Seconds before a process without free descriptors or memory accepts again."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_GONE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM)
"""Errors that concern the connection, not the listener: accept(2)."""


class Acceptor:
    """Owns a listening, non-blocking socket. ``protocol`` returns the protocol for a new connection."""

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._protocol = protocol
        self._sockets = sockets()
        self._is_watched = False
        # accepted sockets inherit it (net/ipv4/tcp_minisocks.c): small pieces must not wait for each other
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def _watch(self) -> None:
        if self._listener.fileno() >= 0:
            self._is_watched = True
            self._sockets.watch(self._listener.fileno(), READABLE, self._accept)

    def _pause(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._sockets.forget(self._listener.fileno())

    def _accept(self, _events: int) -> bool:
        try:
            channel, _address = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _SCARCE:
                self._pause()
                asyncio.get_running_loop().call_later(_RETRY, self._watch)
            elif error.errno not in _GONE:
                self._pause()  # the host has shut the listener down
            return False
        channel.setblocking(False)
        SocketTransport(channel, self._protocol()).receive()
        return False

    def close(self) -> None:
        self._pause()
        self._listener.close()


if sys.platform == "win32":
    from mudroom.core.registry import twin

    RESERVED, take_control, watch_host = twin("gate").RESERVED, twin("gate").take_control, twin("gate").watch_host
else:
    from mudroom.net.posix_process import RESERVED, take_control, watch_host

_COLLECT_AFTER = 10_000
"""New objects before the garbage collector runs; Python's 700 are three connections."""


def main(resolver: Resolver = resolve) -> NoReturn:
    os.chdir("/")
    control, most_descriptors = take_control()
    budget = MemoryBudget(MOST_HELD, max(16, (most_descriptors - RESERVED) // 2))  # a connection may take two
    gc.freeze()  # imported objects stay; the collector need not look at them again
    gc.set_threshold(_COLLECT_AFTER)
    status = 1
    try:
        runner = asyncio.Runner(loop_factory=GateLoop)
        runner.run(serve(control, resolver, budget))
        status = 0
    finally:
        os._exit(status)  # exit without waiting for a thread that hangs in a lookup


async def serve(control: socket.socket, resolver: Resolver, budget: MemoryBudget) -> None:
    """Serve commands until the control socket closes or the host process ends. ``budget``: shared by all commands."""
    control.setblocking(False)
    loop = asyncio.get_running_loop()
    inbox, finished = wire.Inbox(), asyncio.Event()
    commands: set[_Command] = set()

    def ready() -> None:
        try:
            while (packet := inbox.receive(control)) is not None:
                data, descriptors = packet
                message = wire.to_gate.decode(data)
                if not isinstance(message, wire.OpenMessage):
                    raise wire.BrokenMessage("a command's message on the control socket")
                commands.add(_Command(message, descriptors, resolver, budget, commands))
        except (EOFError, OSError, wire.BrokenMessage, msgspec.DecodeError):
            loop.remove_reader(control.fileno())
            finished.set()

    loop.add_reader(control.fileno(), ready)
    _host = watch_host(loop, finished.set)
    await finished.wait()


class _Command:
    """A command in this process: its socket to the host, its listeners, its guard."""

    def __init__(
        self,
        message: wire.OpenMessage,
        descriptors: list[int],
        resolver: Resolver,
        budget: MemoryBudget,
        commands: set[_Command],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        channel, *listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        channel.setblocking(False)
        self._channel = channel
        self._commands = commands
        self._inbox = wire.Inbox()
        self._acceptors: dict[str, list[Acceptor]] = {}
        """By kind."""
        self._closing: asyncio.Task[None] | None = None
        self.guard = guard = Guard(channel, message, resolver, budget)
        names = Synthetic()
        with_ipv6 = any(listener.family == socket.AF_INET6 for listener in listeners)
        responder = Responder(guard, names, with_ipv6, with_refused="redirected" in message.kinds)
        self._context = ListenerContext(guard, names, responder)
        self._datagrams: list[socket.socket] = []
        self._loop.add_reader(channel.fileno(), self._on_readable)
        sockets().prefer(channel.fileno())
        self._add(message.kinds, listeners)

    def _add(self, kinds: list[str], listeners: list[socket.socket]) -> None:
        for kind, listener in zip(kinds, listeners, strict=True):
            listener.setblocking(False)
            if kind != "dns-udp":
                client = functools.partial(ListenerClient, self._context, serve_of(kind), FIND.get(kind))
                acceptor = Acceptor(listener, client)
                self._acceptors.setdefault(kind, []).append(acceptor)
            else:
                self._context.responder.prepare(listener)
                self._datagrams.append(listener)
                self._loop.add_reader(listener.fileno(), self._context.responder.serve_udp, listener)

    def _close_listeners(self, kinds: Iterable[str]) -> None:
        for kind in list(kinds):
            for acceptor in self._acceptors.pop(kind, ()):
                acceptor.close()

    def _on_readable(self) -> None:
        try:
            while (packet := self._inbox.receive(self._channel)) is not None:
                listeners = [socket.socket(fileno=descriptor) for descriptor in packet[1]]
                self._handle_message(wire.to_gate.decode(packet[0]), listeners)
        except (EOFError, OSError, wire.BrokenMessage, msgspec.DecodeError):
            self._shut()

    def _handle_message(self, message: wire.ToGate, listeners: list[socket.socket]) -> None:
        match message:
            case wire.ListenMessage(kinds):
                self._add(kinds, listeners)
            case wire.CloseMessage(kinds):
                self._close_listeners(kinds)
            case wire.DialledMessage():
                self.guard.dials.answered(message, listeners)
            case wire.AnswerMessage():
                self.guard.answer(message)
            case wire.UpdateMessage(rules):
                self.guard.update(rules)
            case wire.ShutMessage():
                self._shut()
            case wire.OpenMessage():
                raise wire.BrokenMessage("a command within a command")

    def _shut(self) -> None:
        if self._closing is None:
            self._loop.remove_reader(self._channel.fileno())
            self._closing = self._loop.create_task(self._close())

    async def _close(self) -> None:
        self._close_listeners(self._acceptors)
        for channel in self._datagrams:
            self._loop.remove_reader(channel.fileno())
            channel.close()
        await self.guard.shut()
        self._channel.close()
        self._commands.discard(self)
