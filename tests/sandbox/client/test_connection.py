"""Messages of a host process to its launcher arrive whole, whatever interrupts the sender."""

from __future__ import annotations

import _socket
import marshal
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from mudroom.errors import MudroomError
from mudroom.sandbox.client.connection import Connection


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
