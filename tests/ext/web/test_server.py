"""Connections that never become a request, and how long they have."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from mudroom.errors import UsageError
from mudroom.ext.web.server import server
from mudroom.ext.web.server.server import HttpConnection, listen


class Impatient(HttpConnection):
    patience = 0.2


async def answering(_scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"in"})


async def said(data: bytes, much_later: bytes = b"") -> bytes:
    """What is answered until the server closes the connection."""
    config = uvicorn.Config(
        answering, log_config=None, log_level="critical", lifespan="off", ws="none", timeout_keep_alive=1
    )
    config.load()
    state = uvicorn.server.ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Impatient(config, state, {}), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(data)
        try:
            if much_later:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 3 * Impatient.patience)
                writer.write(much_later)
            return await asyncio.wait_for(reader.read(), 20)
        except ConnectionResetError:
            return b"reset"
        finally:
            writer.close()


REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


@pytest.mark.parametrize("half", [b"", b"GET / HTTP/1.1\r\nHost: "])
def test_half_a_request_has_no_answer(half: bytes) -> None:
    assert asyncio.run(said(half)) in (b"", b"reset")


def test_a_second_half_request_on_a_connection_has_none_either() -> None:
    answer = asyncio.run(said(REQUEST + b"1234" + b"GET / HTTP/1.1\r\n"))
    assert answer in (b"reset", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nin")


class Crowded(HttpConnection):
    most = 20


async def crowd(rest: list[bytes]) -> tuple[bytes, list[bool]]:
    """Open connections that send this and no more, then one with a whole request. Return its answer, and which of the
    others are still open."""
    config = uvicorn.Config(
        answering, log_config=None, log_level="critical", lifespan="off", ws="none", limit_concurrency=Crowded.most + 1
    )
    config.load()
    state = uvicorn.server.ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Crowded(config, state, {}), "127.0.0.1", 0)
    async with server:
        where = server.sockets[0].getsockname()
        ends = []
        for data in rest:
            ends.append(await asyncio.open_connection(*where))
            ends[-1][1].write(data)
            if data.endswith(b"1234"):
                await ends[-1][0].readuntil(b"in")
        reader, writer = await asyncio.open_connection(*where)
        writer.write(REQUEST + b"1234")
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 20)
        alive = []
        for other, _writer in ends:
            try:
                alive.append(bool(await asyncio.wait_for(other.read(1), 0.01)))
            except TimeoutError:
                alive.append(True)
            except ConnectionError:
                alive.append(False)
        for _reader, one in (*ends, (reader, writer)):
            one.close()
        return answer, alive


def test_half_requests_make_room_for_whole_ones() -> None:
    """The oldest first; it was a 503 for ten seconds."""
    answer, alive = asyncio.run(crowd([b"GET / HTTP/1.1\r\n"] * 30))
    assert answer == b"HTTP/1.1 200 OK\r\n"
    assert alive == [False] * 11 + [True] * 19


def test_who_has_been_served_is_closed_after_those_that_have_not() -> None:
    answer, alive = asyncio.run(crowd([REQUEST + b"1234", REQUEST + b"1", *[b""] * 18]))
    assert answer == b"HTTP/1.1 200 OK\r\n"
    assert alive == [True, True, False, *[True] * 17]


def test_a_request_that_does_not_come_to_its_end_makes_room_last() -> None:
    answer, alive = asyncio.run(crowd([REQUEST + b"1"] * 25))
    assert answer == b"HTTP/1.1 200 OK\r\n"
    assert alive == [False] * 6 + [True] * 19


def test_a_body_is_waited_for_by_whoever_reads_it() -> None:
    answer = asyncio.run(said(REQUEST + b"1", b"234"))
    assert answer.endswith(b"\r\n\r\nin")


def test_only_loopback_and_a_port_that_is_taken() -> None:
    sockets = listen(0)
    port = sockets[0].getsockname()[1]
    try:
        assert {one.getsockname()[:2] for one in sockets} <= {("127.0.0.1", port), ("::1", port)}
        assert {one.proto for one in sockets} == {socket.IPPROTO_TCP}
        with pytest.raises(UsageError, match=f"port {port}: Address already in use"):
            listen(port)
    finally:
        for one in sockets:
            one.close()


def taken_by_ipv6() -> socket.socket:
    try:
        return socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("there is no ::1 here")


def test_a_port_that_somebody_else_has_by_ipv6_is_not_had() -> None:
    """A name that leads to both would lead there."""
    with taken_by_ipv6() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"\[::1\]:{port}: Address already in use"):
            listen(port)


def test_any_free_port_is_one_that_is_free_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    with taken_by_ipv6() as taken:
        bound, ports = server._bind, [taken.getsockname()[1], 0]
        monkeypatch.setattr(server, "_bind", lambda family, host, port: bound(family, host, port or ports.pop(0)))
        sockets = listen(0)
        assert (len(sockets), ports) == (2, [])
        for one in sockets:
            one.close()


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_without_ipv6_it_is_ipv4_alone(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    bound = server._bind

    def without(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise server._bind_error(OSError(number, os.strerror(number)), host, port)
        return bound(family, host, port)

    monkeypatch.setattr(server, "_bind", without)
    (only,) = listen(0)
    only.close()


MUCH = 32 << 20
"""More than the kernel keeps of what is not read."""


class Unread(HttpConnection):
    reading = 0.3


async def much(_scope: Any, _receive: Any, send: Callable[[Any], Any]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % MUCH)]})
    await send({"type": "http.response.body", "body": bytes(MUCH)})


async def idle(_scope: Any, _receive: Any, send: Callable[[Any], Any]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"i", "more_body": True})
    await asyncio.sleep(4 * Unread.reading)
    await send({"type": "http.response.body", "body": b"n"})


@asynccontextmanager
async def answered(
    app: Any, kind: type[HttpConnection]
) -> AsyncIterator[tuple[tuple[str, int], uvicorn.server.ServerState]]:
    config = uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", ws="none")
    config.load()
    state = uvicorn.server.ServerState()
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0) as made:
        yield made.sockets[0].getsockname(), state


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


def test_who_does_not_read_is_cut_off() -> None:
    async def stuck() -> None:
        async with answered(much, Unread) as (address, state):
            reader, writer = await asyncio.open_connection(*address, limit=1)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: bool(state.connections))
            await until(lambda: not state.connections)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(MUCH)
            writer.close()

    asyncio.run(stuck())


@pytest.mark.parametrize(("app", "length"), [(much, MUCH), (idle, 2)])
def test_who_reads_slowly_or_has_nothing_to_read_is_not(app: Any, length: int) -> None:
    async def slow() -> int:
        async with answered(app, Unread) as (address, _state):
            reader, writer = await asyncio.open_connection(*address, limit=1 << 16)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            got = 0
            while data := await asyncio.wait_for(reader.read(length // 8 + 1), 20):
                got += len(data)
                if app is much and got < MUCH // 64:
                    await asyncio.sleep(Unread.reading / 3)
            writer.close()
            return got

    assert asyncio.run(slow()) == length


def test_only_so_many_connections_of_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    class Few(HttpConnection):
        strangers = 3

    async def come(whose: int | None, number: int) -> int:
        monkeypatch.setattr(server, "stranger_of", lambda _ours, _theirs: whose)
        async with answered(answering, Few) as (address, state):
            made = [await asyncio.open_connection(*address) for _number in range(number)]
            try:
                for reader, _writer in made[3:] if whose is not None else []:
                    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                        await asyncio.wait_for(reader.readexactly(1), 20)
                await until(lambda: len(state.connections) == (3 if whose is not None else number))
                made[0][1].write(REQUEST + b"1234")
                assert await asyncio.wait_for(made[0][0].readline(), 20) == b"HTTP/1.1 200 OK\r\n"
                return len(state.connections)
            finally:
                for _reader, writer in made:
                    writer.close()

    assert asyncio.run(come(65534, 8)) == 3
    assert asyncio.run(come(None, 8)) == 8
