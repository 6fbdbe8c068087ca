"""Nonsense from both sides at a real gate process: it lives on, and nothing of it is a fault of its own."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.core.network.host_rules import HostRule
from origin import Web
from tiers import daily
from town import OpenGuard, Town, read_all

HASTE = {
    "gate.request_head.HEAD_TIME": 0.3,
    "listeners.accept.FIRST_BYTE": 0.3,
    "listeners.tunnel.FIRST_BYTES": 0.3,
    "listeners.socks.PATIENCE": 0.3,
}
HASTE |= {"gate.peer.DISMISSAL": 0.1}
ROUNDS = 40
AT_ONCE = 10


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path, constants=HASTE) as town:
        yield town


def mixture(chance: random.Random, pieces: list[bytes]) -> bytes:
    """Some pieces in any order, with a byte changed here and there."""
    data = bytearray(b"".join(chance.choices(pieces, k=chance.randrange(1, 12))))
    for _ in range(chance.choice((0, 0, 1, 3))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def check(town: Town, guard: OpenGuard, port: int) -> None:
    """It is the same process, and does its work."""
    first = town.gate.pid
    guard.take(guard.guard.receive())
    request = b"GET http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\nConnection: close\r\n\r\n" % (port, port)
    assert read_all(guard.connect(request)).endswith(b"hello\n")
    assert town.gate.pid == first
    guard.wait(flows=1)
    assert [flow for flow in guard.flows if "the gate failed" in flow.reason] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_clients_that_say_anything(town: Town, seed: int) -> None:
    chance, web = random.Random(seed), Web()
    port = town.serve(web)
    town.names({"web.example": [["127.0.0.1"]]})
    guard = town.guard(HostRule("allow", "web.example", (port,), private=True))
    where = b"web.example:%d" % port
    pieces = [
        b"GET http://%s/ HTTP/1.1\r\n" % where,
        b"POST http://%s/ HTTP/1.1\r\n" % where,
        b"Host: %s\r\n" % where,
        b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where),
        b"\r\n",
        b"Content-Length: 7\r\n",
        b"7\r\n1234567\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffffff\r\n",
        b"Expect: 100-continue\r\n",
        b"1234567",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03" + bytes(60),
        b"\x05\x01\x00",
        b"\x05\x01\x00\x03\x0bweb.example" + port.to_bytes(2, "big"),
        b"GET / HTTP/1.1\r\n",
        bytes(40),
    ]
    for _ in range(ROUNDS):
        clients = [guard.connect(mixture(chance, pieces)) for _ in range(AT_ONCE)]
        for client in clients:
            end = chance.randrange(3)
            if end == 0:
                client.shutdown(socket.SHUT_WR)
            if end == 1:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
            client.close()
    check(town, guard, port)


@pytest.mark.slow
@pytest.mark.parametrize("seed", daily(range(3)))
def test_servers_that_say_anything(town: Town, seed: int) -> None:
    chance = random.Random(seed)
    pieces = [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 204 No\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"\r\n",
        b"hello\n",
        b"Content-Length: 6\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"6\r\nhello\n\r\n",
        b"0\r\n\r\n",
        b"Connection: close\r\n",
        b"X: \x00\r\n",
        b"Set-Cookie: a\r\n b\r\n",
        b"ffffffff\r\n",
        b"Trailer: x\r\n",
        bytes(40),
    ]

    def talk(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(mixture(chance, pieces))

    wild, web = town.serve(talk), Web()
    port = town.serve(web)
    town.names({"web.example": [["127.0.0.1"]]})
    guard = town.guard(HostRule("allow", "web.example", (wild, port), private=True))
    methods = (b"GET", b"HEAD", b"POST", b"OPTIONS")
    for _ in range(ROUNDS):
        for _ in range(AT_ONCE):
            extra = chance.choice((b"", b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Content-Length: 0\r\n"))
            request = b"%s http://web.example:%d/ HTTP/1.%d\r\nHost: web.example:%d\r\nConnection: close\r\n%s\r\n"
            client = guard.connect(request % (chance.choice(methods), wild, chance.randrange(2), wild, extra))
            client.shutdown(socket.SHUT_WR)
            read_all(client)
            client.close()
    check(town, guard, port)


def test_datagrams_that_say_anything(town: Town) -> None:
    """The DNS responder on loopback: from one socket to itself it would be an endless talk, if it answered answers."""
    chance = random.Random(1)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    server.setsockopt(socket.IPPROTO_IP, 8, 1)
    where = server.getsockname()
    with server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        town.guard_at([("dns-udp", server)], HostRule("allow", "good.example"))
        client.connect(where)
        client.settimeout(0.2)
        good = b"\0\7\1\0\0\1\0\0\0\0\0\0\4good\7example\0\0\1\0\1"
        for _ in range(500):
            data = bytearray(good)
            for _ in range(chance.randrange(4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            client.send(bytes(data[: chance.randrange(len(data) + 1)]))
        reply = b""
        while not reply.startswith(b"\x77\x77"):
            client.send(b"\x77\x77" + good[2:])
            try:
                reply = client.recv(4096)
            except TimeoutError:
                continue  # a full socket drops what comes
            assert reply[2] & 0x80
        assert reply[3] & 15 == 0
