"""The proxy to forks without a fork: who is refused before anything is connected, and servers that answer wrongly."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, MutableMapping
from typing import Any, cast

import h11
import pytest

from mudroom.errors import MudroomError
from mudroom.ext.web.server import fork_proxy
from mudroom.ext.web.server.fork_address import ForkAddress
from mudroom.ext.web.server.fork_proxy import ForkProxy
from mudroom.ext.web.server.guard import STRANGER, hosts_of
from mudroom.ext.web.server.login import Login
from mudroom.ext.web.server.sandboxed_peer import SANDBOXED
from tiers import each

PORT = 8765
ADDRESS = ForkAddress(3000, "dev", "app", PORT)
BEARER = (b"authorization", b"Bearer token")
Sent = list[MutableMapping[str, Any]]


def proxy(*names: str, login: Login | None = None) -> ForkProxy:
    """One that must not look for a fork."""
    return ForkProxy(cast("Any", None), login or Login(PORT, "token"), hosts_of(PORT, names))


def served(one: ForkProxy, *headers: tuple[bytes, bytes], **more: Any) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: Sent = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"method": "GET", "raw_path": b"/", "path": "/", "query_string": b"", "headers": list(headers), **more}
    asyncio.run(one.serve(scope, receive, send, ADDRESS))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


@each("whose", [SANDBOXED, 1000])
def test_another_user_and_a_sandbox_are_refused(whose: object) -> None:
    """With the token, behind a proxy too, and on the way in."""
    for one in (proxy(), proxy("box.example")):
        for path in ("/", fork_proxy.ENTER):
            status, _headers, text = served(one, BEARER, state={STRANGER: whose}, path=path, raw_path=path.encode())
            assert (status, text.startswith(b"the request comes from a")) == (403, True)


def test_so_many_requests_are_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MOST_PER_FORK", "MOST"):
        with monkeypatch.context() as patch:
            patch.setattr(fork_proxy, limit, 0)
            assert served(proxy(), BEARER)[0] == 503


@each(
    ("host", "is_forks"),
    [
        ("dev--app.localhost:8765", True), ("1.dev--app.localhost:8765", True), ("dev--app.localhost:8080", True),
        ("dev.app.localhost:8765", True), ("dev--app.localhost:9999", False), ("dev--app.localhost", False),
        ("a.b.localhost:8765", False), ("x.a.b.localhost:8765", False), ("1.a.b.localhost:8765", False),
        ("x.mudroom.localhost:8765", False), ("1.x.mudroom.localhost:8765", False), ("c--d.localhost:8765", False),
    ],
)  # fmt: skip
def test_a_name_of_the_page_is_no_forks(host: str, is_forks: bool) -> None:
    one = proxy("mudroom.localhost", "a.b.localhost:8765", "c--d.localhost:8765", "localhost:8080")
    assert (one.address([(b"host", host.encode())]) is not None) == is_forks
    assert one.address([(b"host", host.encode())] * 2) is None
    assert one.address([]) is None


def test_what_is_no_address_of_a_fork() -> None:
    with pytest.raises(MudroomError) as raised:
        proxy().visit("evil.example/x")
    assert str(raised.value) == (
        "this is not the address of a fork (FORK--PROJECT.localhost, with the port of the page)"
    )


def test_a_code_counts_once_and_for_a_while() -> None:
    now = [0.0]
    login = Login(PORT, "token", clock=lambda: now[0])
    code = login.new_code(ADDRESS.zone)
    assert login.enter_fork("other--app.localhost", code) == "" and not login._use_code(code)
    cookie = login.enter_fork(ADDRESS.zone, code).partition(";")[0].encode()
    assert cookie and login.enter_fork(ADDRESS.zone, code) == ""
    headers = [(b"cookie", b"mudroom-8765=junk; " + cookie)]
    assert login.knows_fork(headers, ADDRESS.zone)
    assert not login.knows_fork(headers, "other--app.localhost") and login.browser(headers) is None
    late = login.new_code(ADDRESS.zone)
    now[0] += 8 * 24 * 3600
    assert login.enter_fork(ADDRESS.zone, late) == "" and not login.knows_fork(headers, ADDRESS.zone)


def exchanged(answer: bytes | None, method: str = "GET") -> tuple[Sent, str]:
    """What is sent to the browser, and what the proxy says itself."""
    sent: Sent = []
    ours, theirs = socket.socketpair()

    async def run() -> str:
        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        bodies: Iterator[MutableMapping[str, Any]] = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> MutableMapping[str, Any]:
            if (message := next(bodies, None)) is not None:
                return message
            await asyncio.Event().wait()
            raise AssertionError

        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        request = h11.Request(method=method, target="/", headers=[("Host", "x"), ("Connection", "close")])
        try:
            await fork_proxy._exchange(receive, send, ADDRESS, request, reader, writer)
        except fork_proxy._Refused as refused:
            return f"{refused.status} {refused}"
        finally:
            writer.transport.abort()
        return ""

    with theirs:
        if answer is not None:
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)
        return sent, asyncio.run(run())


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "it closed the connection without a response"),
        (b"HELO\r\n\r\n", "its answer is not HTTP: illegal status line"),
        (b"HTTP/1.1 999 Odd\r\n\r\n", "its answer has the status 999"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "its answer is not HTTP"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 200, "it answered with 103 and with nothing else"),
        (OK + b"X: a\rSet-Cookie: b\r\n\r\n", "its answer is not HTTP"),
        (OK + b"X: a\0b\r\n\r\n", "its answer is not HTTP"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "its answer is not HTTP"),
        (OK + b"Transfer-Encoding: gzip\r\n\r\nab", "its answer is not HTTP"),
        (OK + b"X: " + b"a" * 100_000, "its answer is not HTTP"),
        (None, "it sent no answer within 0.05 s"),
    ],
)
def test_a_server_that_answers_wrongly(answer: bytes | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_proxy, "IDLE", 0.05 if answer is None else 60)
    sent, refused = exchanged(answer)
    assert sent == [] and refused.startswith(f"502 the server in the fork: {why}"), refused


def test_what_is_passed_on() -> None:
    headers = (
        b"Connection: keep-alive, x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nAlt-Svc: h3\r\nX-Own: 1\r\nUpgrade: h2c\r\n"
    )
    cookies = b"Set-Cookie: a=1; DOMAIN = .dev--app.localhost\r\nSet-Cookie: b=2;domain=localhost; Secure\r\n"
    cookies += b"Set-Cookie: mudroom-8765=x; Path=/\r\nSet-Cookie: c=3; Domain=3000.dev--app.localhost\r\n"
    sent, refused = exchanged(
        OK + headers + cookies + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    )
    assert refused == "" and sent[0]["headers"] == [
        (b"x-own", b"1"), (b"set-cookie", b"a=1; DOMAIN = .dev--app.localhost"), (b"set-cookie", b"b=2; Secure"),
        (b"set-cookie", b"c=3"), (b"origin-agent-cluster", b"?1"),
    ]  # fmt: skip
    assert b"".join(message["body"] for message in sent[1:]) == b"a" and not sent[-1]["more_body"]


def test_an_answer_that_is_cut_off_is_cut_off_here() -> None:
    sent, refused = exchanged(OK + b"Content-Length: 5\r\n\r\nab")
    assert refused == "" and [message.get("more_body") for message in sent] == [None, True]
