"""A gate, servers for it to reach, and names for them: all on loopback, the gate's process a real one."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import mudroom
from mudroom.core.network.flow import Flow, FlowQuestion
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.net.gate_handle import Gate, GuardHandle, Kind, Listener, Received

_PATHS = [str(Path(mudroom.__file__).parent.parent), str(Path(__file__).parent)]
WAIT = 60.0
"""Seconds until a test that waits for something has failed."""


class Town:
    """Names are what ``names`` says: each to one answer after the other, the last of them for ever. ``constants`` of
    the gate's modules that are others in this one's process: ``read.HEAD_TIME``."""

    def __init__(self, directory: Path, upstream: str = "", constants: Mapping[str, float] | None = None) -> None:
        self._table = directory / "names.json"
        self._log = directory / "lookups"
        self._log.touch()
        program = (
            f"import sys; sys.path[:0] = {_PATHS!r}; from phonebook import main; main({str(self._table)!r}, "
            f"{str(self._log)!r}, {dict(constants or {})!r})"
        )
        self.gate = Gate(program, upstream)
        self.names({})
        self.closers: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.close()
        for close in self.closers:
            close()

    def names(self, table: dict[str, list[list[str]]]) -> None:
        self._table.write_text(json.dumps(table))

    def lookups(self) -> list[str]:
        """The names that were looked up in earnest, so far."""
        return self._log.read_text().split()

    def guard(
        self,
        *rules: HostRule,
        kind: Kind = "proxy",
        ask: bool = False,
        ask_timeout: float = 60.0,
        inspection: Inspection | None = None,
    ) -> OpenGuard:
        listener = socket.create_server(("127.0.0.1", 0))
        where = listener.getsockname()
        guard = self.gate.open(
            rules, [Listener(kind, listener.detach())], ask=ask, ask_timeout=ask_timeout, inspection=inspection
        )
        opened = OpenGuard(guard, where, self.closers)
        self.closers.append(lambda: guard.shut(0))
        return opened

    def guard_at(
        self, listeners: Sequence[tuple[Kind, socket.socket]], *rules: HostRule, ask: bool = False
    ) -> OpenGuard:
        """As ``guard``, at listeners that were made elsewhere."""
        given = [Listener(kind, os.dup(listener.fileno())) for kind, listener in listeners]
        guard = self.gate.open(rules, given, ask=ask)
        self.closers.append(lambda: guard.shut(0))
        return OpenGuard(guard, None, self.closers)

    def serve(self, talk: Callable[[socket.socket], object], address: str = "127.0.0.1", port: int = 0) -> int:
        """A server that talks like that with every client, in a thread; returns its port."""
        listener = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.closers += [lambda: listener.shutdown(socket.SHUT_RDWR), listener.close]  # a close alone wakes no accept
        threading.Thread(target=_accept, args=(listener, talk), daemon=True).start()
        return int(listener.getsockname()[1])


def _accept(listener: socket.socket, talk: Callable[[socket.socket], object]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_talk, args=(client, talk), daemon=True).start()


def _talk(client: socket.socket, talk: Callable[[socket.socket], object]) -> None:
    with client:
        client.settimeout(WAIT)
        try:
            talk(client)
        except OSError:
            return  # the client is gone, which is the test's affair


class OpenGuard:
    """A guard and all that it has told."""

    def __init__(self, guard: GuardHandle, where: Any, closers: list[Callable[[], object]]) -> None:
        self.closers = closers
        self.guard = guard
        self.where = where
        self.flows: list[Flow] = []
        self.questions: list[FlowQuestion] = []

    def connect(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection(self.where[:2], timeout=WAIT)
        self.closers.append(client.close)
        client.sendall(data)
        return client

    def wait(self, *, flows: int = 0, questions: int = 0) -> None:
        """Until so many have been told on the whole."""
        limit = time.monotonic() + WAIT
        while len(self.flows) < flows or len(self.questions) < questions:
            assert time.monotonic() < limit, (self.flows, self.questions)
            select.select([self.guard], [], [], 0.1)
            self.take(self.guard.receive())

    def take(self, told: Sequence[Received]) -> None:
        for one in told:
            if isinstance(one, Flow):
                self.flows.append(one)
            elif isinstance(one, FlowQuestion):
                self.questions.append(one)

    def flow(self) -> Flow:
        """The one flow that there is, or will be."""
        self.wait(flows=1)
        (flow,) = self.flows
        return flow


def read_all(client: socket.socket) -> bytes:
    """To the end; a reset is one, too."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def read_until(client: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        part = client.recv(65536)
        assert part, data
        data += part
    return data


def read_exactly(client: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length and (part := client.recv(length - len(data))):
        data += part
    return data


def echo(client: socket.socket) -> None:
    while data := client.recv(65536):
        client.sendall(data)
