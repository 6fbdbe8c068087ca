"""Connections between forks through a link: two machines and their hub, as socket pairs."""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Iterator

import pytest

from mudroom.errors import MudroomError
from mudroom.session.confinement.dialler import ForkRefused
from mudroom.session.confinement.fork_link import MOST, WINDOW, CarriedSocket, ForkLink, Kind


class Wire:
    """Two sides of a link in one thread, with the messages between them."""

    def __init__(self) -> None:
        self.there: deque[tuple[Kind, int, bytes]] = deque()
        self.back: deque[tuple[Kind, int, bytes]] = deque()
        self.asks = ForkLink(lambda *message: self.there.append(message))
        self.asked = ForkLink(lambda *message: self.back.append(message))
        self.sent: list[tuple[Kind, int]] = []
        self.servers: list[socket.socket] = []
        self.refuses = ""

    def turn(self) -> bool:
        """Do what there is to do once. Return whether there was anything."""
        was_busy = False
        for link in (self.asks, self.asked):
            for carried in list(link.carried.values()):
                was_busy |= _pump(carried)
        while self.there or self.back:
            was_busy = True
            if self.there:
                self._arrive(*self.there.popleft())
            if self.back:
                kind, number, body = self.back.popleft()
                self.sent.append((kind, number))
                self.asks.handle(kind, number, body)
        return was_busy

    def _arrive(self, kind: Kind, number: int, body: bytes) -> None:
        if kind != "dial":
            self.asked.handle(kind, number, body)
            return
        assert body == b"planner coder.mudroom.internal 8000"
        if self.refuses:
            self.asks.dialled(number, self.refuses, is_refused=True)
            return
        near, server = socket.socketpair()
        server.settimeout(5)
        self.servers.append(server)
        self.asked.carry(number, near)
        self.asks.dialled(number, "", rule="network.forks")

    def settle(self) -> None:
        while self.turn():
            pass

    def connect(self) -> tuple[socket.socket, socket.socket]:
        dial = self.asks.dial("planner", "coder.mudroom.internal", 8000)
        assert not select.select([dial], [], [], 0)[0]
        self.settle()
        assert select.select([dial], [], [], 0)[0]
        made = dial.result()
        dial.close()
        assert made.rule == "network.forks"
        client = socket.socket(fileno=made.descriptor)
        client.settimeout(5)
        return client, self.servers[-1]


def _pump(carried: CarriedSocket) -> bool:
    before, poller = carried.near.fileno(), select.poll()
    wanted = select.POLLIN if carried.is_readable else 0
    poller.register(carried.near, wanted | (select.POLLOUT if carried.is_full else 0))
    ready = dict(poller.poll(0)).get(before, 0)
    if wanted and ready & (select.POLLIN | select.POLLHUP):
        carried.pump()
    if ready & select.POLLOUT and carried.near.fileno() >= 0:
        carried.flush()
    return bool(ready & (wanted | select.POLLOUT)) or carried.near.fileno() != before


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.asks.close()
    wire.asked.close()
    for server in wire.servers:
        server.close()


def test_bytes_go_both_ways_and_half_closes_are_passed_on(wire: Wire) -> None:
    client, server = wire.connect()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    wire.settle()
    assert server.recv(99) == b"question" and server.recv(99) == b""
    server.sendall(b"answer")
    server.close()
    wire.settle()
    assert client.recv(99) == b"answer" and client.recv(99) == b""
    client.close()
    wire.settle()
    assert not wire.asks.carried and not wire.asked.carried


def test_a_reader_that_does_not_read_bounds_what_is_on_the_way(wire: Wire) -> None:
    client, server = wire.connect()
    client.setblocking(False)
    sent = 0
    payload = os.urandom(1 << 16)
    while True:
        try:
            sent += client.send(payload)
        except BlockingIOError:
            before = sent
            wire.settle()
            try:
                sent += client.send(payload)
            except BlockingIOError:
                assert sent == before
                break
    assert sent <= WINDOW + (2 << 20), "two socket buffers and the window"
    received = 0
    while received < sent:
        received += len(server.recv(1 << 20))
        wire.settle()
    assert received == sent
    client.close()
    server.close()
    wire.settle()
    assert not wire.asks.carried and not wire.asked.carried


def test_a_refusal_is_one(wire: Wire) -> None:
    wire.refuses = "coder does not show port 8000"
    dial = wire.asks.dial("planner", "coder.mudroom.internal", 8000)
    wire.settle()
    with pytest.raises(ForkRefused, match="does not show"):
        dial.result()
    dial.close()
    assert not wire.asks.carried


def test_the_end_of_the_link_ends_all(wire: Wire) -> None:
    client, server = wire.connect()
    dial = wire.asks.dial("planner", "coder.mudroom.internal", 8000)
    wire.asks.close()
    with pytest.raises(MudroomError, match="the link to the other machine has ended"):
        dial.result()
    dial.close()
    assert client.recv(9) == b""
    client.close()
    wire.asked.close()
    assert server.recv(9) == b""


def test_a_dial_that_is_given_up(wire: Wire) -> None:
    dial = wire.asks.dial("planner", "coder.mudroom.internal", 8000)
    dial.close()
    wire.settle()
    assert not wire.asks.carried and not wire.asked.carried


def test_what_a_hostile_side_sends(wire: Wire) -> None:
    """More than the window, numbers of nobody, room that was never taken, words that are no numbers."""
    client, _server = wire.connect()
    for kind, number, body in (
        ("data", 99, b"x"),
        ("shut", 99, b""),
        ("room", 1, b"-5"),
        ("room", 1, b"9" * 400),
        ("room", 1, b"\xb2"),
        ("room", 1, b""),
    ):
        wire.asks.handle(kind, number, body)  # type: ignore[arg-type]
    wire.asks.dialled(99, "")
    wire.asks.dialled(1, "late")
    assert list(wire.asks.carried) == [1]
    wire.asks.handle("data", 1, b"x" * (WINDOW + 1))
    assert not wire.asks.carried and client.recv(9) == b""
    client.close()
    with pytest.raises(MudroomError):
        for number in range(MOST + 1):
            near, far = socket.socketpair()
            wire.servers.append(far)
            wire.asked.carry(number, near)
    wire.asked.close()


def test_there_are_bounds(wire: Wire) -> None:
    dials = [wire.asks.dial("planner", "coder.mudroom.internal", 8000) for _ in range(MOST)]
    with pytest.raises(MudroomError, match="connections go through the link"):
        wire.asks.dial("planner", "coder.mudroom.internal", 8000)
    for dial in dials:
        dial.close()
    wire.settle()
    assert not wire.asks.carried
