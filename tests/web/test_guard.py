"""Who is answered on loopback: ours, and nobody whom another page sent."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from mudroom.web.guard import Guard, own_hosts

TOKEN = "secret-token"
PORT = 8765
OWN = ("host", f"127.0.0.1:{PORT}")
BEARER = ("authorization", f"Bearer {TOKEN}")


async def inner(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"referrer-policy", b"own")]})
    await send({"type": "http.response.body", "body": b"in"})


def ask(path: str, *headers: tuple[str, str]) -> tuple[int, dict[bytes, bytes], bytes]:
    guard = Guard(inner, PORT, TOKEN, {"/public"}.__contains__)
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    asyncio.run(guard({"type": "http", "path": path, "headers": raw}, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
def test_our_own_hosts(host: str) -> None:
    assert ask("/public", ("host", host))[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", "",
        f"localhost:{PORT}.evil.example", f"127.0.0.1:{PORT}@evil.example", f"0.0.0.0:{PORT}", f"127.1:{PORT}",
        f"localhost.:{PORT}", f"127.0.0.1:{PORT} ", f"127.0.0.1:0{PORT}",
    ],
)  # fmt: skip
def test_a_name_that_was_made_to_lead_here(host: str) -> None:
    for path in ("/public", "/"):
        status, _headers, body = ask(path, ("host", host), BEARER)
        assert (status, b"in" in body.split()) == (421, False)


def test_one_host_and_no_more() -> None:
    assert ask("/public")[0] == 421
    assert ask("/public", OWN, OWN)[0] == 421
    assert ask("/public", OWN, ("Host", "evil.example"))[0] == 421


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("origin", f"http://127.0.0.1:{PORT}", 200),
        ("origin", f"http://localhost:{PORT}", 200),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "", 403),
        ("origin", f"https://127.0.0.1:{PORT}", 403),
        ("origin", "http://127.0.0.1", 403),
        ("origin", f"http://127.0.0.1:{PORT}.evil.example", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "anything", 403),
    ],
)
def test_another_site_is_not_answered(name: str, value: str, status: int) -> None:
    assert ask("/public", OWN, (name, value))[0] == status
    assert ask("/", OWN, BEARER, (name, value))[0] == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (BEARER, 200),
        (("authorization", f"bearer {TOKEN}"), 200),
        (("cookie", f"x=y; mudroom-{PORT}={TOKEN}"), 200),
        (("authorization", TOKEN), 401),
        (("authorization", "Bearer "), 401),
        (("authorization", f"Bearer {TOKEN}x"), 401),
        (("authorization", f"Basic {TOKEN}"), 401),
        (("authorization", "Bearer \xe9"), 401),
        (("cookie", f"mudroom-1={TOKEN}"), 401),
        (("cookie", f"mudroom-{PORT}"), 401),
        (("x-token", TOKEN), 401),
    ],
)
def test_the_token(header: tuple[str, str], status: int) -> None:
    found, headers, _body = ask("/", OWN, header)
    assert found == status
    assert (b"www-authenticate" in headers) == (status == 401)


def test_what_is_public_is_public_by_its_very_path() -> None:
    for path in ("/public/", "/public/../x", "//public", "/Public", "/publicx"):
        assert ask(path, OWN)[0] == 401


def test_headers_of_ours_are_with_every_answer() -> None:
    for request in (("/public", OWN), ("/", OWN)):
        _status, headers, _body = ask(*request)
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert ask("/public", OWN)[1][b"referrer-policy"] == b"own"


def test_nothing_but_http_is_served() -> None:
    guard = Guard(inner, PORT, TOKEN, lambda _path: True)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    for kind in ("websocket", "lifespan"):
        asyncio.run(guard({"type": kind, "path": "/public", "headers": []}, receive, send))
    assert sent == []


def test_the_port_of_http_need_not_be_named() -> None:
    assert b"localhost" in own_hosts(80)
    assert b"localhost" not in own_hosts(8080)
