"""Through another proxy, where the host's network wants one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mudroom.core.network.host_rules import HostRule
from mudroom.net.gate_handle import Gate
from mudroom.net.protocol.upstream import parse_upstream
from town import Town, echo, read_all, read_exactly, read_until

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Proxy:
    """Answers every CONNECT with ``answer``, and goes on as an echo."""

    def __init__(self, answer: bytes = b"HTTP/1.0 200 fine\r\nVia: x\r\n\r\n") -> None:
        self.answer = answer
        self.heads: list[bytes] = []

    def __call__(self, client: socket.socket) -> None:
        self.heads.append(read_until(client, b"\r\n\r\n"))
        client.sendall(self.answer)
        echo(client)


def connect(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


def test_what_is_allowed_goes_through_it_and_is_not_looked_up_here(tmp_path: Path) -> None:
    proxy = Proxy()
    with Town(tmp_path) as first:
        port = first.serve(proxy)
        with Town(tmp_path, f"http://me:pass%20word@127.0.0.1:{port}") as town:
            guard = town.guard(HostRule("allow", "db.example", (9999,)))
            client = guard.connect(connect("db.example", 9999))
            assert read_exactly(client, len(ESTABLISHED)) == ESTABLISHED
            client.sendall(b"?hello")
            assert read_exactly(client, 6) == b"?hello"
            client.close()
            assert read_all(guard.connect(connect("evil.example", 9999))).startswith(b"HTTP/1.1 403 ")
            guard.wait(flows=2)
            assert {flow.address for flow in guard.flows} == {f"proxy 127.0.0.1:{port}", ""}
            assert "word" not in repr(guard.flows)
            assert town.lookups() == []
    (head,) = proxy.heads
    assert head.startswith(b"CONNECT db.example:9999 HTTP/1.1\r\nHost: db.example:9999\r\n")
    assert b"Proxy-Authorization: Basic bWU6cGFzcyB3b3Jk\r\n" in head


def test_private_hosts_are_reached_without_it(tmp_path: Path) -> None:
    with Town(tmp_path, "http://127.0.0.1:1") as town:
        port = town.serve(echo)
        town.names({"db.example": [["127.0.0.1"]]})
        guard = town.guard(
            HostRule("allow", "db.example", (port,), private=True), HostRule("allow", "10.0.0.1", (port,))
        )
        client = guard.connect(connect("db.example", port))
        assert read_exactly(client, len(ESTABLISHED)) == ESTABLISHED
        assert read_all(guard.connect(connect("10.0.0.1", port))).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 407 no\r\n\r\n", b"garbage\r\n\r\n", b"", b"x" * 20_000, b"HTTP/1.1 200\r\n"]
)
def test_a_proxy_that_does_not_let_us_through(tmp_path: Path, answer: bytes) -> None:
    def talk(client: socket.socket) -> None:
        read_until(client, b"\r\n\r\n")
        client.sendall(answer)

    with Town(tmp_path) as first:
        port = first.serve(talk)
        with Town(tmp_path, f"127.0.0.1:{port}") as town:
            guard = town.guard(HostRule("allow", "db.example", (9999,)))
            assert read_all(guard.connect(connect("db.example", 9999))).startswith(b"HTTP/1.1 502 ")
            assert "proxy" in guard.flow().error


@pytest.mark.parametrize(
    "text", ["https://proxy.example:443", "socks5://p.example", "http://u:geheim@0x7f.1:80", "http://"]
)
def test_what_is_no_such_proxy_is_said_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Gate(upstream=text)
    assert "geheim" not in str(caught.value)


def test_how_proxies_are_written() -> None:
    assert str(parse_upstream("proxy.example:3128/")) == "proxy proxy.example:3128"
    assert parse_upstream("HTTP://a:b%40c@[::1]:80").credentials == b"a:b@c"
