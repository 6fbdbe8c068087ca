"""Sockets of the gate's event loop: bounded, in order, fair, and none reported for ever."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from mudroom.core.network.budget import FLOOR, MemoryBudget
from mudroom.net import process as process_module
from mudroom.net.gate import transport
from mudroom.net.gate.dial import dial
from mudroom.net.gate.event_loop import GateLoop
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.relay import relay
from mudroom.net.gate.transport import UNCHARGED, SocketTransport
from mudroom.net.process import Acceptor


class Recorder(asyncio.Protocol):
    """Writes down what its transport tells it."""

    def __init__(self, events: list[tuple[str, Any]] | None = None, name: str = "") -> None:
        self.name = name
        self.account = UNCHARGED
        self.events = [] if events is None else events
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def _add(self, what: str, value: object = None) -> None:
        self.events.append((f"{self.name}{what}", value))

    def data_received(self, data: bytes) -> None:
        self._add("data", bytes(data))

    def eof_received(self) -> bool:
        self._add("end")
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._add("lost", error)

    def pause_writing(self) -> None:
        self._add("pause")

    def resume_writing(self) -> None:
        self._add("resume")


@pytest.fixture
def pair() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """Connected TCP sockets: the gate's and the other end's."""
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as listener:

        def connect() -> tuple[socket.socket, socket.socket]:
            other = stack.enter_context(socket.create_connection(listener.getsockname()))
            ours, _address = listener.accept()
            ours.setblocking(False)
            other.settimeout(20)
            return stack.enter_context(ours), other

        yield connect


Pair = Callable[[], tuple[socket.socket, socket.socket]]


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection of an earlier test has read a small message, or was left with bytes."""
    monkeypatch.setattr(SocketTransport, "small_at", 0.0)
    monkeypatch.setattr(UNCHARGED, "held", 0)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=GateLoop) as runner:
        runner.run(work())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def test_what_a_socket_does_not_take_is_sent_later_in_order(pair: Pair) -> None:
    before = UNCHARGED.held  # of tests before this one: the account is the process's

    async def work() -> None:
        ours, other = pair()
        recorder = Recorder()
        channel = SocketTransport(ours, recorder)
        parts = [bytes([number]) * 100_000 for number in range(100)]
        for part in parts:
            channel.write(part)
        assert UNCHARGED.held > before
        assert [name for name, _ in recorder.events] == ["pause"], "told once, at the first byte that had to wait"
        channel.close()
        received = bytearray()
        other.setblocking(False)

        def read() -> bool:
            try:
                part = other.recv(1 << 20)
            except BlockingIOError:
                return False
            received.extend(part)
            return not part

        await until(read)
        assert bytes(received) == b"".join(parts)
        await until(lambda: recorder.events[-1] == ("lost", None))
        assert UNCHARGED.held == before

    run(work)


def test_a_fast_connection_is_read_once_a_turn(pair: Pair) -> None:
    """However much it has sent, another one's byte waits for one read of it at most."""

    async def work() -> None:
        events: list[tuple[str, Any]] = []
        (fast, fast_end), (slow, slow_end) = pair(), pair()
        SocketTransport(fast, Recorder(events, "fast ")).piece = 1_000
        SocketTransport(slow, Recorder(events, "slow "))
        fast_end.sendall(b"x" * 100_000)
        await until(lambda: bool(events))
        slow_end.sendall(b"!")
        before = len(events)
        await until(lambda: ("slow data", b"!") in events)
        assert events.index(("slow data", b"!")) - before <= 2
        assert all(len(data) <= 1_000 for _name, data in events)

    run(work)


def test_a_read_is_as_long_as_the_room_of_the_account(pair: Pair) -> None:
    async def work() -> None:
        ours, other = pair()
        recorder, account = Recorder(), MemoryBudget(1 << 20).share().open(lambda: None)
        recorder.account = account
        other.sendall(b"x" * 50_000)
        SocketTransport(ours, recorder).piece = transport.BULK
        account.hold(account.room() // 3 - 2_000)
        room = account.room()
        assert FLOOR < room < 40_000
        await until(lambda: bool(recorder.events))
        assert len(recorder.events[0][1]) == room
        account.hold(40_000)
        other.sendall(b"x" * 50_000)
        await until(lambda: len(recorder.events) > 1)
        assert len(recorder.events[1][1]) == FLOOR, "so much is always read"

    run(work)


def test_reads_are_short_beside_small_messages_of_another_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "PIECE", 100)
    monkeypatch.setattr(transport, "CALM", 1000.0)

    async def work() -> None:
        (fast, fast_end), (slow, slow_end) = pair(), pair()
        recorder, other = Recorder(), Recorder()
        SocketTransport(fast, recorder).piece = 10_000
        SocketTransport(slow, other)
        fast_end.sendall(b"x" * 10_000)
        await until(lambda: sum(len(data) for _name, data in recorder.events) == 10_000)
        assert recorder.events[0] == ("data", b"x" * 10_000), "nobody else is there"
        slow_end.sendall(b"!")
        await until(lambda: bool(other.events))
        recorder.events.clear()
        fast_end.sendall(b"x" * 300)
        await until(lambda: len(recorder.events) == 3)
        assert {len(data) for _name, data in recorder.events} == {100}
        monkeypatch.setattr(transport, "CALM", 0.0)
        recorder.events.clear()
        fast_end.sendall(b"x" * 300)
        await until(lambda: bool(recorder.events))
        assert len(recorder.events[0][1]) == 300

    run(work)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_paused_socket_is_not_reported(pair: Pair, end: str) -> None:
    """epoll reports an end whether it is wanted or not: the loop would turn for ever."""

    async def work() -> None:
        ours, other = pair()
        recorder = Recorder()
        channel = SocketTransport(ours, recorder)
        channel.pause_reading()
        other.sendall(b"x")
        if end == "reset":
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, GateLoop)
        assert loop.sockets._epoll.poll(0.05) == []
        assert recorder.events == []
        channel.resume_reading()
        if end == "reset":
            await until(lambda: bool(recorder.events) and recorder.events[-1][0] == "lost")
            assert isinstance(recorder.events[-1][1], ConnectionResetError)
            return
        await until(lambda: recorder.events == [("data", b"x"), ("end", None)])
        assert loop.sockets._epoll.poll(0.05) == []

    run(work)


def test_half_a_close_comes_after_the_unsent_bytes(pair: Pair) -> None:
    async def work() -> None:
        ours, other = pair()
        recorder = Recorder()
        channel = SocketTransport(ours, recorder)
        channel.write(b"x" * 8_000_000)
        channel.write_eof()
        channel.write(b"too late")
        other.setblocking(False)
        received = []

        def read() -> bool:
            try:
                received.append(len(other.recv(1 << 20)))
            except BlockingIOError:
                return False
            return received[-1] == 0

        await until(read)
        assert sum(received) == 8_000_000
        other.setblocking(True)
        other.sendall(b"answer")
        await until(lambda: ("data", b"answer") in recorder.events)

    run(work)


def test_a_protocol_that_fails_loses_its_connection_alone(pair: Pair) -> None:
    class Failing(Recorder):
        def data_received(self, data: bytes) -> None:  # noqa: ARG002
            raise ValueError("a fault of the gate")

    async def work() -> None:
        (ours, other), (good, good_end) = pair(), pair()
        failing, recorder = Failing(), Recorder()
        SocketTransport(ours, failing)
        SocketTransport(good, recorder)
        other.sendall(b"x")
        good_end.sendall(b"y")
        await until(lambda: bool(failing.events) and bool(recorder.events))
        assert isinstance(failing.events[0][1], ValueError)
        assert recorder.events == [("data", b"y")]
        assert other.recv(1) == b""

    run(work)


def test_a_report_of_a_socket_that_another_handler_has_closed(pair: Pair) -> None:
    """Both are reported in one turn; the first closes the second, whose number may be another's by then."""

    async def work() -> None:
        (first, first_end), (second, second_end) = pair(), pair()
        events: list[tuple[str, Any]] = []
        channels: list[SocketTransport] = []

        class Closing(Recorder):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                for channel in channels:
                    channel.abort()

        channels += [SocketTransport(first, Closing(events)), SocketTransport(second, Closing(events))]
        first_end.sendall(b"x")
        second_end.sendall(b"x")
        await until(lambda: len(events) == 3)
        assert sorted(name for name, _ in events) == ["data", "lost", "lost"]

    run(work)


def test_no_socket_is_served_before_a_message_of_the_host(pair: Pair) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, GateLoop)
        ours, other = pair()
        host, gate = socket.socketpair()
        events: list[tuple[str, Any]] = []
        SocketTransport(ours, Recorder(events))
        loop.add_reader(gate.fileno(), lambda: events.append(("host", gate.recv(1))))
        loop.sockets.prefer(gate.fileno())
        other.sendall(b"x")
        host.send(b"!")
        await until(lambda: len(events) == 2)
        assert [name for name, _ in events] == ["host", "data"]
        loop.remove_reader(gate.fileno())
        with host, gate:
            pass

    run(work)


# --- accepting and dialling ---


def test_an_accepted_connection_is_read_at_once_and_does_not_delay_small_pieces() -> None:
    async def work() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        recorders: list[Recorder] = []

        class Accepted(Recorder):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                recorders.append(self)

        guard = Acceptor(listener, Accepted)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        for client in clients:
            client.sendall(b"x")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, GateLoop)
        for number in range(1, 4):
            loop.sockets.select(0)
            assert len(recorders) == number, "one of a crowd in each turn"
            assert recorders[-1].events == [("data", b"x")]
        for recorder in recorders:
            option = recorder.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert option, "the listener's, inherited"
        guard.close()
        for client in clients:
            client.close()
        await until(lambda: all(recorder.events[-1][0] == "end" for recorder in recorders))
        for recorder in recorders:
            recorder.transport.abort()

    run(work)


def test_without_descriptors_the_listener_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_RETRY", 0.01)

    async def work() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        accepted: list[Recorder] = []

        def protocol() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        guard = Acceptor(listener, protocol)
        client = socket.create_connection(listener.getsockname())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(map(int, os.listdir("/proc/self/fd")))
        taken = [os.dup(0) for _ in range(highest - len(os.listdir("/proc/self/fd")) + 2)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
        try:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, GateLoop)
            loop.sockets.select(0)
            assert accepted == []
            assert loop.sockets._epoll.poll(0) == [], "not reported while nothing can be done"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in taken:
                os.close(descriptor)
        client.close()
        await until(lambda: len(accepted) == 1 and bool(accepted[0].events))
        accepted[0].transport.abort()
        guard.close()

    run(work)


def test_a_connection_that_stands_at_once_waits_for_nothing() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            dialling = dial([bytes((127, 0, 0, 1))], listener.getsockname()[1])
            with pytest.raises(StopIteration) as done:  # the coroutine ends without having waited
                dialling.send(None)
            peer, address = done.value.value
            assert address == "127.0.0.1"
            peer.cut()

    run(work)


def test_a_port_that_is_closed_is_refused_with_its_reason() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(OSError, match="refused") as failure:
            await dial([bytes((127, 0, 0, 1)), bytes((127, 0, 0, 1))], port)
        assert failure.value.errno == errno.ECONNREFUSED

    run(work)


# --- relaying ---


def joined(pair: Pair) -> tuple[Peer, socket.socket, Peer, socket.socket]:
    (client, client_end), (server, server_end) = pair(), pair()
    peers = Peer(), Peer()
    for channel, peer in zip((client, server), peers, strict=True):
        SocketTransport(channel, peer)
    return peers[0], client_end, peers[1], server_end


def test_a_relay_holds_no_more_than_one_read_of_a_client_that_does_not_read(pair: Pair) -> None:
    before = UNCHARGED.held  # of tests before this one: the account is the process's

    async def work() -> None:
        client, client_end, server, server_end = joined(pair)
        task = asyncio.create_task(relay(client, server))
        server_end.setblocking(False)
        sent = idle = 0
        while idle < 50:
            try:
                sent += server_end.send(b"x" * 65536)
                idle = 0
            except BlockingIOError:
                idle += 1
            await asyncio.sleep(0)
            assert UNCHARGED.held - before <= transport.BULK
        assert client.transport is not None
        received = 0
        server_end.shutdown(socket.SHUT_WR)
        client_end.setblocking(False)
        async with asyncio.timeout(20):
            while True:
                try:
                    part = len(client_end.recv(1 << 20))
                except BlockingIOError:
                    await asyncio.sleep(0)
                    continue
                if not part:
                    break
                received += part
        assert received == sent == server.count
        client_end.close()
        await asyncio.wait_for(task, 20)
        assert UNCHARGED.held == before

    run(work)


def test_a_relay_ends_when_an_end_is_lost_and_the_other_does_not_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom.net.gate.relay.LINGER", 0.05)

    before = UNCHARGED.held  # of tests before this one: the account is the process's

    async def work() -> None:
        client, client_end, server, server_end = joined(pair)
        task = asyncio.create_task(relay(client, server))
        server_end.setblocking(False)
        await asyncio.sleep(0)
        full = 0
        while full < 50:
            try:
                server_end.send(b"x" * 65536)
                full = 0
            except BlockingIOError:
                full += 1
                await asyncio.sleep(0)
        assert UNCHARGED.held > before
        server.cut()
        await asyncio.wait_for(task, 20)
        assert client.transport.is_closing()
        assert UNCHARGED.held == before
        assert client_end.recv(1) == b"x"

    run(work)


def test_a_turn_of_the_loop_is_for_what_is_not_passed_on(pair: Pair) -> None:
    """Timers, tasks of other threads and the end of a relay come through while bytes pass."""

    async def work() -> None:
        client, client_end, server, server_end = joined(pair)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, GateLoop)
        task = asyncio.create_task(relay(client, server))
        await asyncio.sleep(0)
        turns: list[float | None] = []
        select = loop.sockets.select

        def counted(timeout: float | None = None) -> Any:
            turns.append(timeout)
            return select(timeout)

        loop.sockets.select = counted  # type: ignore[method-assign]
        rounds = 0
        over = threading.Event()

        def talk() -> None:
            nonlocal rounds
            while not over.is_set() or rounds < 1000:
                client_end.sendall(b"?")
                assert server_end.recv(1) == b"?"
                server_end.sendall(b"!")
                assert client_end.recv(1) == b"!"
                rounds += 1
                if rounds == 1000:
                    loop.call_soon_threadsafe(reached.set)
            client_end.close()

        reached = asyncio.Event()
        thread = threading.Thread(target=talk)
        thread.start()
        await asyncio.sleep(0.001)
        await asyncio.wait_for(reached.wait(), 20)
        assert len(turns) < 100, "of 2,000 pieces"
        over.set()
        await loop.run_in_executor(None, thread.join)
        server_end.close()
        await asyncio.wait_for(task, 20)

    run(work)
