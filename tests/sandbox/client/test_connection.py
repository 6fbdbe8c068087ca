"""Messages of a host process to its launcher arrive whole, whatever interrupts the sender."""

from __future__ import annotations

import _socket
import marshal
import select
import signal
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mudroom.errors import MudroomError
from mudroom.sandbox.client import connection as connection_module
from mudroom.sandbox.client.connection import Connection, wait_readable


@pytest.fixture
def ends() -> Iterator[tuple[_socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def received(theirs: socket.socket, count: int) -> list[Any]:
    found = []
    with theirs.makefile("rb") as stream:
        for _number in range(count):
            size = int.from_bytes(stream.read(4), "little")
            found.append(marshal.loads(stream.read(size)))
    return found


def test_a_handler_that_comes_in_the_middle(ends: tuple[_socket.socket, socket.socket]) -> None:
    """The handler's message is sent after the interrupted one is complete."""
    ours, theirs = ends
    connection = Connection(ours)

    class Interrupted:
        """The socket, with a signal between the two halves of a message."""

        def sendmsg(self, *words: Any) -> int:
            sent = ours.sendmsg(*words)
            signal.raise_signal(signal.SIGUSR1)
            return sent

        def sendall(self, data: bytes) -> None:
            ours.sendall(data)

    times: list[int] = []

    def handle(number: int, _frame: object) -> None:
        times.append(number)
        if len(times) < 3:
            connection.send({"from": "handler", "time": len(times)}, ())

    connection._socket = Interrupted()  # type: ignore[assignment]
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        connection.send({"from": "main"}, ())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received(theirs, 3) == [{"from": "main"}, {"from": "handler", "time": 1}, {"from": "handler", "time": 2}]


def test_who_is_gone_is_said(ends: tuple[_socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.close()
    connection = Connection(ours)
    for _again in range(2):
        with pytest.raises(MudroomError) as raised:
            connection.send({"op": "x"}, ())
        hint = "run the command again; mudroom doctor tries the sandbox"
        assert str(raised.value) == f"the sandbox launcher is gone: Broken pipe ({hint})"


@pytest.mark.parametrize(("left", "milliseconds"), [(0.0, 0), (-1.0, 0), (0.0004, 0.4), (2.0, 2000)])
def test_a_look_does_not_wait(monkeypatch: pytest.MonkeyPatch, left: float, milliseconds: float) -> None:
    """A deadline of now is a look. poll(2) rounds up, so that no wait is too short."""
    waits: list[float | None] = []

    class Poller:
        def register(self, _descriptor: int, _events: int) -> None:
            pass

        def poll(self, timeout: float | None) -> list[tuple[int, int]]:
            waits.append(timeout)
            return []

    monkeypatch.setattr(connection_module, "select", SimpleNamespace(poll=Poller, POLLIN=select.POLLIN))
    monkeypatch.setattr(connection_module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(connection_module, "sys", SimpleNamespace(platform="linux"))
    assert wait_readable([0], 100.0 + left) == []
    assert waits == [pytest.approx(milliseconds)]
