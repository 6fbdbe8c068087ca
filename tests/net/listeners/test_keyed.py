"""A listener for connections that begin with a key: others get nothing, and nothing is said of them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from mudroom.errors import MudroomError
from mudroom.net.gate_handle import Gate, GuardHandle, Listener
from mudroom.session.confinement.loopback import listen_apart
from whole_text import whole

REQUEST = b"GET http://denied.invalid/ HTTP/1.1\r\nHost: denied.invalid\r\n\r\n"


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.close()


def answer(address: tuple[str, int], *pieces: bytes) -> bytes:
    with socket.create_connection(address, timeout=30) as channel:
        for piece in pieces:
            channel.sendall(piece)
        channel.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while data := channel.recv(65536):
                received += data
        except ConnectionResetError:
            pass  # closed with unread data
        return received


def test_only_a_connection_with_the_key_is_a_proxy_s(gate: Gate) -> None:
    kind, descriptor, (address, key) = listen_apart(16)
    guard: GuardHandle = gate.open([], [Listener(kind, descriptor)], ask=False)
    try:
        assert answer(address, key + REQUEST).startswith(b"HTTP/1.1 403")
        assert answer(address, key[:7], key[7:] + REQUEST[:3], REQUEST[3:]).startswith(b"HTTP/1.1 403")
        for wrong in (b"", key[:-1], REQUEST, bytes(32) + REQUEST, key[1:] + key[:1] + REQUEST, b"\x05\x01\x00" * 11):
            assert answer(address, wrong) == b"", wrong
    finally:
        flows = guard.shut(10)
    assert [flow.host for flow in flows] == ["denied.invalid"] * 2


def test_its_address_is_another_one_of_the_loopback_with_a_port_that_is_free_on_the_first() -> None:
    kind, descriptor, ((host, port), key) = listen_apart(16)
    with socket.socket(fileno=descriptor) as listener, socket.socket() as inside:
        assert listener.getsockname() == (host, port) == ("127.0.0.2", port)
        inside.bind(("127.0.0.1", port))
        assert kind == f"keyed={key.hex()}" and len(key) == 32


def test_a_machine_that_lets_nobody_listen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(socket.socket):
        def listen(self, _backlog: int = 0, /) -> None:
            raise OSError(errno.ENOBUFS, "No buffer space available")

    monkeypatch.setattr(socket, "socket", Full)
    with pytest.raises(
        MudroomError, match=whole("the gate cannot listen: No buffer space available (run the command again)")
    ):
        listen_apart(16)


def test_a_port_that_is_not_free_at_its_address_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a command that has just ended: TIME_WAIT."""
    refused = list[int]()

    class Waiting(socket.socket):
        def listen(self, backlog: int = 0, /) -> None:
            if len(refused) < 3:
                refused.append(self.getsockname()[1])
                raise OSError(errno.EADDRINUSE, "Address already in use")
            super().listen(backlog)

    monkeypatch.setattr(socket, "socket", Waiting)
    _kind, descriptor, (address, _key) = listen_apart(16)
    with socket.socket(fileno=descriptor) as listener:
        assert listener.getsockname() == address
    assert len(refused) == 3
