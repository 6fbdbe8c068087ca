"""A port of a command on the loopback of this machine: for this user, since every user reaches the loopback."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from mudroom.net.listeners import inbound, peer_user
from mudroom.net.listeners.inbound import InboundListener
from mudroom.net.listeners.late_socket import FAMILIES
from mudroom.net.listeners.peer_user import ConnectionEnd, named_stranger
from tiers import each

pytestmark = [pytest.mark.both_users, pytest.mark.root]

UP, HALF, LEFT, LISTENING = 1, 5, 8, 10
CLIENT = """
import socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
client.sendall(b"hello")
if len(sys.argv) > 2:
    client.close()
    sys.exit()
try:
    sys.stdout.write(client.recv(10).decode())
except ConnectionError:
    pass
"""


def make(family: bytes) -> socket.socket:
    """Return a socket of this machine's own network, in place of a command's."""
    return socket.socket(FAMILIES[family], socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


class Opened:
    def __init__(self, port: int, refused: list[str], served: list[bytes]) -> None:
        self.port, self.refused, self.served = port, refused, served

    def asked_by(self, user: int, *more: str) -> str:
        words = [sys.executable, "-I", "-c", CLIENT, str(self.port), *more]
        who: dict[str, object] = {"user": user, "group": user, "extra_groups": []} if user != os.geteuid() else {}
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=30, **who).stdout  # type: ignore[call-overload,no-any-return]


@contextmanager
def opened(*, for_all: bool = False) -> Iterator[Opened]:
    served: list[bytes] = []
    refused: list[str] = []
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:

        def serve() -> None:
            while True:
                try:
                    taken, _address = server.accept()
                except OSError:
                    return
                with taken:
                    served.append(taken.recv(100))
                    taken.sendall(b"served")

        ended, end = os.pipe()
        ports: list[int] = []
        up = threading.Event()

        def listening(port: int) -> None:
            ports.append(port)
            up.set()

        opening = InboundListener(make, server.getsockname()[1], (0,), None if for_all else refused.append)
        threads = [threading.Thread(target=serve), threading.Thread(target=opening.run, args=(ended, listening))]
        for thread in threads:
            thread.start()
        assert up.wait(20)
        try:
            yield Opened(ports[0], refused, served)
        finally:
            os.close(end)
            threads[1].join(20)
            server.shutdown(socket.SHUT_RDWR)
            threads[0].join(20)
            os.close(ended)


def test_this_user_is_served() -> None:
    with opened() as port:
        assert port.asked_by(os.geteuid()) == "served"
    assert port.refused == []
    assert port.served == [b"hello"]


def test_a_connection_that_is_reset_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another connection may have its addresses by the time that the kernel is asked: that one is this user's."""
    client, sent, reset = socket.socket(), threading.Event(), threading.Event()

    def late(_ours: object, _theirs: object) -> str:
        assert sent.wait(20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        reset.set()
        return ""

    monkeypatch.setattr(inbound, "stranger", late)
    with opened() as port:
        client.connect(("127.0.0.1", port.port))
        client.sendall(b"hello")
        sent.set()
        assert reset.wait(20)
    assert port.refused == ["a process that has gone"]
    assert port.served == []


def test_the_end_of_a_connection_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reset:
        def can_write_eof(self) -> bool:
            return True

        def write_eof(self) -> None:  # shutdown(2) of a socket that was reset
            raise OSError(errno.ENOTCONN, "not connected")

    async def pump() -> None:
        reader = asyncio.StreamReader()
        reader.feed_eof()
        await inbound._pump(reader, Reset())  # type: ignore[arg-type]

    asyncio.run(pump())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("way", ["_by_netlink", "_by_table"])
def test_another_user_is_refused_before_a_byte_is_passed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"_by_netlink": "_by_table", "_by_table": "_by_netlink"}[way]
    monkeypatch.setattr(peer_user, other, lambda *_: None)
    with opened() as port:
        assert port.asked_by(65534) == ""
        for _time in range(20):  # it says all that it has to say, and goes before it is asked for
            port.asked_by(65534, "gone")
        assert port.asked_by(os.geteuid()) == "served"
    assert port.refused[0] == "the user 65534"
    assert len(port.refused) == 21
    assert port.served == [b"hello"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_all_users_if_all_are_meant() -> None:
    with opened(for_all=True) as port:
        assert port.asked_by(65534) == "served"


def test_a_user_that_is_not_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for way in ("_by_netlink", "_by_table"):
        monkeypatch.setattr(peer_user, way, lambda *_: None)
    with opened() as port:
        assert port.asked_by(os.geteuid()) == ""
    assert port.refused == ["a user that this kernel does not tell"]
    assert port.served == []


Ends: Sequence[tuple[ConnectionEnd | None, ConnectionEnd | None, int, str]] = [
    (ConnectionEnd(UP, 1000), ConnectionEnd(UP, 1000), 1000, ""),
    (ConnectionEnd(HALF, 1000), ConnectionEnd(LEFT, 1000), 1000, ""),  # it has said all that it will say
    (ConnectionEnd(UP, 0), ConnectionEnd(UP, 0), 0, ""),
    (ConnectionEnd(UP, 0), ConnectionEnd(UP, 1000), 1000, "the user 0"),  # a service of root may be asked by anybody
    (ConnectionEnd(UP, 1001), ConnectionEnd(UP, 1000), 1000, "the user 1001"),
    (ConnectionEnd(HALF, 0), ConnectionEnd(LEFT, 0), 0, "a process that has gone"),
    (None, ConnectionEnd(UP, 1000), 1000, "a process that has gone"),
    (ConnectionEnd(LISTENING, 1000), ConnectionEnd(UP, 1000), 1000, "a process that has gone"),
    (ConnectionEnd(UP, 1000), None, 1000, "a process that has gone"),
    (ConnectionEnd(UP, 1000), ConnectionEnd(LISTENING, 1000), 1000, "a process that has gone"),
]


@each(("other", "own", "uid", "whose"), Ends)
def test_whose_it_is(other: ConnectionEnd | None, own: ConnectionEnd | None, uid: int, whose: str) -> None:
    assert named_stranger(other, own, uid) == whose
