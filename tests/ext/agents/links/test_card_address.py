"""An agent's card, as it is read in another fork."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

from mudroom.ext.agents.links.card_address import MOST, readdressed, writer_for
from tiers import each

HOST = "coder.mudroom.internal"
URLS = {
    "http://localhost:9123/a2a": (9123, f"http://{HOST}:9123/a2a"),
    "HTTP://127.0.0.1:9123": (9123, f"http://{HOST}:9123"),
    "http://[::1]:9123/?x#y": (9123, f"http://{HOST}:9123/?x#y"),
    "http://localhost:9123": (80, f"http://{HOST}"),
    "http://0.0.0.0:9123/": (9123, f"http://{HOST}:9123/"),
    "http://localhost:9999/other": (9123, f"http://{HOST}:9999/other"),
    "https://localhost:9123/": (9123, "https://localhost:9123/"),
    "http://example.org:9123/": (9123, "http://example.org:9123/"),
    "http://localhost.example.org/": (9123, "http://localhost.example.org/"),
    "localhost:9123": (9123, "localhost:9123"),
}


@each("url", URLS)
def test_urls_of_loopback_name_the_fork(url: str) -> None:
    port, expected = URLS[url]
    card = {"name": "Coder", "url": url, "supportedInterfaces": [{"url": url, "protocolBinding": "GRPC"}]}
    changed = json.loads(readdressed(json.dumps(card).encode(), HOST, port))
    assert changed == {**card, "url": expected, "supportedInterfaces": [{"url": expected, "protocolBinding": "GRPC"}]}


@each(
    "content",
    [
        b"", b"not JSON", b"[]", b"[" * 100_000, b'{"url": 3}', b'{"url":  "http://example.org/"}',
        b'{"url": "http://localhost:1/", "signatures": []}', b'{"url": "http://localhost:99999/"}',
        b'{"supportedInterfaces": [3], "url": "http://localhost:1/"}', b'{"supportedInterfaces": 3}',
    ],
)  # fmt: skip
def test_other_content_stays_as_it_is(content: bytes) -> None:
    assert readdressed(content, HOST, 9123) == content


class Client:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.got = b""

    async def write(self, data: bytes) -> None:
        self.got += data


def written(fields: list[tuple[bytes, bytes]], pieces: list[bytes], status: int = 200) -> bytes:
    """Return what the client gets of a server's response to a request for a card."""
    client, exchange = Client(), SimpleNamespace(host=HOST, port=9123)
    writer = writer_for(cast(Any, exchange), "GET", b"/.well-known/agent-card.json")(cast(Any, client), None)
    writer.connection.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    writer.connection.next_event()

    async def respond() -> None:
        await writer.head(status, fields, b"OK")
        for piece in pieces:
            await writer.data(piece)
        await writer.end()

    asyncio.run(respond())
    return client.got.partition(b"\r\n\r\n")[2]


CARD = b'{"url": "http://localhost:9123/"}'


def test_a_card_in_pieces() -> None:
    assert written([(b"Content-Length", b"%d" % len(CARD))], [CARD[:9], CARD[9:]]) == CARD.replace(
        b"localhost", HOST.encode()
    )


def test_compressed_content_errors_and_long_content_are_passed_on() -> None:
    length = [(b"Content-Length", b"%d" % len(CARD))]
    assert written([*length, (b"Content-Encoding", b"gzip")], [CARD]) == CARD
    assert written(length, [CARD], status=404) == CARD
    long = CARD + b" " * MOST
    assert written([(b"Content-Length", b"%d" % len(long))], [long[:-1], long[-1:]]) == long
