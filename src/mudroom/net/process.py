"""The gate process: takes doors from its host and serves them, until the host is gone.

Rules of this file: descriptor 0 is the host's control socket. When it closes, the process ends, and every connection
with it. The process uses no other part of the machine: no environment, no file, no home.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import socket
import sys
from collections.abc import Iterable
from typing import NoReturn

import msgspec

from mudroom.core.network.budget import MemoryBudget
from mudroom.net.entrances.accept import FIND, EntranceClient, EntranceContext, serve_of
from mudroom.net.entrances.responder import Responder
from mudroom.net.gate.acceptor import Acceptor
from mudroom.net.gate.event_loop import GateLoop, sockets
from mudroom.net.gate.guard import MOST_HELD, DoorGuard
from mudroom.net.gate.resolve import Resolver, resolve
from mudroom.net.protocol import wire
from mudroom.net.protocol.synthetic import Synthetic
from mudroom.system.process import ProcessHandle

MOST_MEMORY = 512 << 20
"""Bytes of private memory of the process (RLIMIT_DATA of setrlimit(2), with mappings since Linux 4.7), libraries and
accounting errors included. An allocation beyond them fails, and the connection with it."""
_OPEN_MAX = 10_240
_COLLECT_AFTER = 10_000
"""New objects until the garbage collector looks at them; Python's 700 are three connections."""


def main(resolver: Resolver = resolve) -> NoReturn:
    os.chdir("/")
    control, most_descriptors = take_control()
    budget = MemoryBudget(MOST_HELD, max(16, (most_descriptors - _RESERVED) // 2))  # a connection may take two
    gc.freeze()  # what is imported stays; the collector need not look at it again
    gc.set_threshold(_COLLECT_AFTER)
    status = 1
    try:
        runner = asyncio.Runner(loop_factory=GateLoop)
        runner.run(serve(control, resolver, budget))
        status = 0
    finally:
        os._exit(status)  # exit without waiting for a thread that hangs in a lookup


if sys.platform == "win32":
    from mudroom.net.nt_process import take_control

    _RESERVED = 100
else:
    import resource
    import signal

    _RESERVED = 400

    def take_control() -> tuple[socket.socket, int]:
        """Return the control socket, and how many descriptors the process may have. Limit its memory."""
        _close_inherited()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its memory contains the traffic
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the signal is for the command, not for its network
        hard_limit = _raise_open_files()
        _, hard_memory = resource.getrlimit(resource.RLIMIT_DATA)
        most_memory = MOST_MEMORY if hard_memory == resource.RLIM_INFINITY else min(MOST_MEMORY, hard_memory)
        resource.setrlimit(resource.RLIMIT_DATA, (most_memory, most_memory))
        return socket.socket(fileno=0), hard_limit

    def _close_inherited() -> None:
        """Close descriptors inherited from the host."""
        if sys.platform == "darwin":
            for name in os.listdir("/dev/fd"):  # SC_OPEN_MAX may be without bounds there
                if int(name) > 2:
                    try:
                        os.close(int(name))
                    except OSError:
                        pass  # the descriptor of the listing itself
            return
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))

    def _raise_open_files() -> int:
        """Raise the limit of open files, and return it. setrlimit(2) of macOS refuses RLIM_INFINITY for it, and takes
        OPEN_MAX of sys/syslimits.h."""
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _OPEN_MAX if sys.platform == "darwin" and hard_limit == resource.RLIM_INFINITY else hard_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard_limit))
        return most


async def serve(control: socket.socket, resolver: Resolver, budget: MemoryBudget) -> None:
    """Serve doors until the control socket closes or the host process ends. ``budget``: of all doors together."""
    control.setblocking(False)
    loop = asyncio.get_running_loop()
    inbox, finished = wire.Inbox(), asyncio.Event()
    doors: set[_Door] = set()

    def ready() -> None:
        try:
            while (packet := inbox.receive(control)) is not None:
                data, descriptors = packet
                message = wire.to_gate.decode(data)
                if not isinstance(message, wire.OpenMessage):
                    raise wire.BrokenMessage("a door's message on the control socket")
                doors.add(_Door(message, descriptors, resolver, budget, doors))
        except (EOFError, OSError, wire.BrokenMessage, msgspec.DecodeError):
            loop.remove_reader(control.fileno())
            finished.set()

    loop.add_reader(control.fileno(), ready)
    if sys.platform != "win32":  # a fork of the host may keep its end of the socket open
        host = ProcessHandle(os.getppid())
        loop.add_reader(host.fileno(), finished.set)
    await finished.wait()


class _Door:
    """A door in this process: its socket to the host, its listeners, its guard."""

    def __init__(
        self,
        message: wire.OpenMessage,
        descriptors: list[int],
        resolver: Resolver,
        budget: MemoryBudget,
        doors: set[_Door],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        channel, *listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        channel.setblocking(False)
        self._channel = channel
        self._doors = doors
        self._inbox = wire.Inbox()
        self._acceptors: dict[str, list[Acceptor]] = {}
        """By kind."""
        self._closing: asyncio.Task[None] | None = None
        self.guard = guard = DoorGuard(channel, message, resolver, budget)
        names = Synthetic()
        with_ipv6 = any(listener.family == socket.AF_INET6 for listener in listeners)
        self._context = EntranceContext(guard, names, Responder(guard, names, with_ipv6))
        self._datagrams: list[socket.socket] = []
        self._loop.add_reader(channel.fileno(), self._on_readable)
        sockets().prefer(channel.fileno())
        self._add(message.kinds, listeners)

    def _add(self, kinds: list[str], listeners: list[socket.socket]) -> None:
        for kind, listener in zip(kinds, listeners, strict=True):
            listener.setblocking(False)
            if kind != "dns-udp":
                client = functools.partial(EntranceClient, self._context, serve_of(kind), FIND.get(kind))
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
                raise wire.BrokenMessage("a door within a door")

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
        self._doors.discard(self)
