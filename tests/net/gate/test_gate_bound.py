"""A flood by one command: what the gate holds is bounded, and another command's request is served meanwhile."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.network.budget import FLOOR, MemoryBudget
from mudroom.core.network.flow import Flow
from mudroom.core.network.host_rules import HostRule, Request
from mudroom.net.gate import guard as guard_module
from mudroom.net.gate.event_loop import GateLoop
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import HELD, Peer
from mudroom.net.gate.resolve import resolve
from mudroom.net.gate.transport import SocketTransport
from mudroom.net.gate_handle import MOST_MEMORY
from mudroom.net.protocol import wire
from origin import Web
from test_gate_budget import Counts, gate_in_a_thread
from town import Town, read_all

MEGABYTE = 1 << 20


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=GateLoop) as runner:
        runner.run(work())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


class Hall:
    """Guards of one budget in this process."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.ends: list[socket.socket] = []

    def guard(self, *rules: HostRule) -> Guard:
        channel, host = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.setblocking(False)
        host.settimeout(20)
        self.ends += [channel, host]
        return Guard(channel, wire.OpenMessage(["proxy"], list(rules), False, 60.0, 1, ""), resolve, self.budget)

    def connect(self, guard: Guard) -> tuple[Client, socket.socket]:
        ours, other = socket.socketpair()
        ours.setblocking(False)
        other.setblocking(False)
        client = Client(guard)
        SocketTransport(ours, client)
        self.ends += [ours, other]
        return client, other

    def close(self) -> None:
        for end in self.ends:
            end.close()


class Client(Peer):
    """As ``ListenerClient``, without what serves it."""

    is_taken = False

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.is_taken = self.guard.register(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.guard.unregister(self)
        super().connection_lost(error)


@pytest.fixture
def hall() -> Iterator[Hall]:
    hall = Hall(MemoryBudget(8 * MEGABYTE, slots=100))
    yield hall
    hall.close()


def test_what_is_read_and_not_taken_is_charged_and_bounded(hall: Hall) -> None:
    async def work() -> None:
        guard = hall.guard()
        hall.budget.slots = 1_000
        crowd = [hall.connect(guard) for _ in range(120)]
        for _round in range(20):
            for _client, other in crowd:
                try:
                    other.send(b"x" * HELD)
                except BlockingIOError:
                    pass
            await asyncio.sleep(0)
        held = [len(client.buffer) for client, _other in crowd]
        assert hall.budget.held == sum(map(len, (client.buffer for client, _other in crowd)))
        assert hall.budget.held <= 4 * MEGABYTE + 120 * FLOOR
        assert min(held) >= FLOOR, "so much of each is always read"
        late, other = hall.connect(hall.guard())
        other.send(b"y" * HELD)
        await until(lambda: len(late.buffer) == HELD)
        for client, _other in crowd:
            client.cut()
        late.cut()
        await until(lambda: hall.budget.held == 0)
        assert hall.budget.connections == 0

    run(work)


def test_more_is_read_as_soon_as_somebody_wants_it(hall: Hall) -> None:
    """Where there is no room either: whoever waits for the end of a message gets it."""

    async def work() -> None:
        guard = hall.guard()
        hog, _other = hall.connect(guard)
        hog.account.serves()
        hog.account.hold(hall.budget.most)
        client, other = hall.connect(guard)
        assert not client.is_taken
        client.charge_to(guard.share.open(client.cut))
        other.send(b"x" * (2 * FLOOR))
        await until(lambda: len(client.buffer) == FLOOR)
        assert not client.transport.is_reading()
        assert await client.more()
        assert len(client.buffer) == 2 * FLOOR

    run(work)


def test_half_requests_of_one_command_do_not_reach_the_other(hall: Hall) -> None:
    async def work() -> None:
        guard, other_guard = hall.guard(), hall.guard()
        first, _end = hall.connect(other_guard)
        first.account.serves()
        crowd = [hall.connect(guard)[0] for _ in range(250)]
        await asyncio.sleep(0)
        assert all(client.is_taken for client in crowd), "the oldest made room for the newest"
        alive = [client for client in crowd if not client.transport.is_closing()]
        assert alive == crowd[-len(alive) :]
        assert len(alive) <= 67
        assert not first.transport.is_closing()
        late = [hall.connect(other_guard)[0] for _ in range(20)]
        assert all(client.is_taken and not client.transport.is_closing() for client in late)

    run(work)


def test_a_command_that_came_late_gets_the_connections_that_others_have_too_many_of(hall: Hall) -> None:
    async def work() -> None:
        for _ in range(5):
            guard = hall.guard()
            for _ in range(70):
                hall.connect(guard)[0].account.serves()
        late_guard = hall.guard()
        late = [hall.connect(late_guard)[0] for _ in range(10)]
        assert all(client.is_taken and not client.transport.is_closing() for client in late)
        assert hall.budget.connections <= 100

    run(work)


def test_what_the_host_does_not_hear_of_waits(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of a connection that is open, too; and by bytes, for a flow can be long."""
    monkeypatch.setattr(guard_module, "MAX_UNSENT_BYTES", 100_000)

    async def work() -> None:
        guard = hall.guard(HostRule("allow", "a.example"))
        host = hall.ends[-1]
        client, _other = hall.connect(guard)
        long = Flow(1, "https", "a.example", 443, "allow", "", "", request=(("x", "y" * 30_000),))
        sent = 0
        while guard.register(hall.connect(guard)[0]):
            guard.ended(long)
            sent += 1
        judged = asyncio.create_task(guard.judge(Request("a.example", 443), "connect", client))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not judged.done()
        for _ in range(sent):
            await asyncio.to_thread(host.recv, 65536)
        async with asyncio.timeout(20):
            assert (await judged).action == "allow"
        assert hall.connect(guard)[0].is_taken

    run(work)


WAYS = {
    "a tunnel": b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
    "a request": b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
    "a refused tunnel": b"CONNECT 127.0.0.1:1%.0d HTTP/1.1\r\nHost: 127.0.0.1:1%.0d\r\n\r\n",
    "half a request": b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n",
    "half a body": b"POST http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 9\r\n\r\n1",
    "nothing": b"%.0d%.0d",
}


def test_nothing_stays_charged_when_all_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = MemoryBudget(64 * MEGABYTE)
    monkeypatch.setattr("test_gate_budget.MemoryBudget", lambda _most: budget)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with gate_in_a_thread(port, Counts()) as (where, _guard):
            clients = []
            for request in WAYS.values():
                client = socket.create_connection(where)
                client.sendall(request % (port, port))
                clients.append(client)
            answers = [server.accept()[0] for _ in range(3)]
            for answer in answers:
                answer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            assert clients[1].recv(4096)
            assert budget.connections == len(WAYS)
            for one in (*clients, *answers):
                one.close()
    assert (budget.held, budget.connections) == (0, 0)


def test_the_process_has_a_limit_of_memory_of_its_own(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        port = town.serve(Web())
        town.names({"web.example": [["127.0.0.1"]]})
        guard = town.guard(HostRule("allow", "web.example", (port,), private=True))
        request = b"GET http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\nConnection: close\r\n\r\n" % (
            port,
            port,
        )
        assert read_all(guard.connect(request)).endswith(b"hello\n")
        assert resource.prlimit(town.gate.pid, resource.RLIMIT_DATA) == (MOST_MEMORY, MOST_MEMORY)
