"""What a client begins with decides whether its requests are judged one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from mudroom.net.gate.exchange import RefusedExchange
from mudroom.net.gate.peer import Peer
from mudroom.net.listeners import tunnel
from mudroom.net.protocol.client_hello import Kind, kind_of
from tiers import each

CONNECT = b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n"


class Refusing:
    """An exchange that is refused at most."""

    way = "raw"

    def refuse(self, reason: str) -> RefusedExchange:
        return RefusedExchange(reason)


def kind_after(*events: Callable[[Peer, Peer], object]) -> Kind:
    """Return the kind of a client after these events, which happen before the gate looks again."""

    async def look() -> Kind:
        client, server = Peer(), Peer()

        def happen() -> None:
            for event in events:
                event(client, server)

        asyncio.get_running_loop().call_soon(happen)
        return await tunnel.check_any_bytes(client, server, cast(Any, Refusing()))

    return asyncio.run(look())


def test_a_request_and_the_end_of_the_client_at_once() -> None:
    """The end came with the bytes, and they were not looked at: a proxy behind the port got the request."""
    assert (
        kind_after(lambda client, _: client.data_received(CONNECT), lambda client, _: client.eof_received()) == "http"
    )


def test_a_request_and_the_server_at_once() -> None:
    assert kind_after(
        lambda client, _: client.data_received(CONNECT), lambda _, server: server.data_received(b"x")
    ) == ("http")


def test_a_server_that_speaks_first() -> None:
    assert kind_after(lambda _, server: server.data_received(b"220 ready\r\n")) == "raw"
    assert kind_after(lambda client, _: client.eof_received()) == "raw"


def test_a_request_that_is_sent_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "FIRST_BYTES", 0.01)
    with pytest.raises(RefusedExchange, match="did not complete its first line in time"):
        kind_after(lambda client, _: client.data_received(b"CONNECT evil.example:443 HT"))


@each(
    ("data", "kind"),
    [
        (b"", None),
        (b"GE", None),
        (b"GET / HTTP/1.", None),
        (b"GET / HTTP/1.1\r\n", "http"),
        (b"GET / HTTP/1.1\n", "http"),
        (b"CONNECT evil.example:443 HTTP/1.0\n\n", "http"),
        (b"RFB 003.008\n", "raw"),
        (b"PING\r\n", "raw"),
        (b"AMQP\0\0\x09\x01", "raw"),
        (b"\x16\x03", "tls"),
    ],
)
def test_the_first_bytes(data: bytes, kind: Kind | None) -> None:
    assert kind_of(data) == kind
