"""What an endpoint raises, gives and waits for, as who has asked is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest
from starlette.requests import Request

from mudroom.core.network.budget import FLOOR
from mudroom.errors import ForkMoved, MudroomError, UsageError
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, Raw
from mudroom.ext.web.server import app
from mudroom.ext.web.server.app import Bodies, Router
from mudroom.ext.web.shape import DoneShape
from mudroom.ext.web.state.refusal import Refusal

Pieces = list[dict[str, Any]]
WHOLE: Pieces = [{"type": "http.request", "body": b'{"done": true}', "more_body": False}]


def ask(
    handle: Callable[[ApiCall], Any],
    pieces: Pieces = WHOLE,
    query: bytes = b"",
    method: str = "POST",
    known: str | None = None,
    bodies: Bodies | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """A request to an endpoint with this handler. ``known``: the tag of an answer that is there already."""
    one = Endpoint(method, "/x", "", handle, DoneShape, DoneShape if method == "POST" else None)
    server: Any = None
    rooms = Router([app._route(method, "/api/v1/x", app._handler(one, server, bodies or Bodies()))])
    given = [] if known is None else [(b"if-none-match", known.encode())]
    sent: list[MutableMapping[str, Any]] = []
    waiting = list(pieces)

    async def receive() -> MutableMapping[str, Any]:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/api/v1/x", "headers": given, "query_string": query}
    asyncio.run(rooms(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:])


def raising(error: Exception) -> Callable[[ApiCall], Any]:
    def handle(_call: ApiCall) -> Any:
        raise error

    return handle


@pytest.mark.parametrize(
    ("error", "status", "code", "text"),
    [
        (Refusal(418, "moved", "why", "hint"), 418, "moved", "why"),
        (UsageError("wrong"), 400, "bad-request", "wrong"),
        (ForkMoved(b"f", "f"), 409, "moved", ForkMoved(b"f", "f").message),
        (MudroomError("cannot"), 409, "failed", "cannot"),
        (FileNotFoundError(2, "No such file", b"/a\x1b\xff"), 409, "failed", "/a\\x1b\\xff: No such file"),
    ],
)
def test_what_is_no_fault_of_ours(
    error: Exception, status: int, code: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, headers, body = ask(raising(error))
    problem = json.loads(body)
    assert (found, problem["code"], problem["error"]) == (status, code, text)
    assert (headers["content-type"], headers["cache-control"]) == ("application/json", "no-store")
    assert capsys.readouterr().err == ""


def impossible(_call: ApiCall) -> Any:
    return {"a": "\ud800"}


@pytest.mark.parametrize(
    "handle",
    [raising(ValueError("a secret\x1b[2J\nof ours")), raising(RecursionError()), raising(MemoryError()), impossible],
)
def test_a_fault_of_ours_is_told_on_stderr_in_one_line(
    handle: Callable[[ApiCall], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    status, _headers, body = ask(handle)
    assert (status, json.loads(body)["code"]) == (500, "failed")
    assert b"secret" not in body and b"Traceback" not in body
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mudroom: POST /api/v1/x: ")
    assert "\x1b" not in line


def test_bytes_are_given_as_they_are() -> None:
    status, headers, body = ask(lambda _call: Raw(b"\xff\0", "image/png", {"x-a": "b"}))
    assert (status, headers["content-type"], headers["x-a"], body) == (200, "image/png", "b", b"\xff\0")


LONG = ["one"] * 2_000


def test_a_long_answer_that_is_there_already_is_not_sent_again() -> None:
    status, headers, body = ask(lambda _call: LONG, method="GET")
    tag = headers["etag"]
    assert (status, json.loads(body), headers["cache-control"]) == (200, LONG, "no-store")
    for known in (tag, f'"other", {tag}'):
        status, headers, body = ask(lambda _call: LONG, method="GET", known=known)
        assert (status, body, headers["etag"], headers["cache-control"]) == (304, b"", tag, "no-store")
    status, headers, body = ask(lambda _call: [*LONG[:-1], "two"], method="GET", known=tag)
    assert (status, json.loads(body)[-1]) == (200, "two")
    assert headers["etag"] != tag


@pytest.mark.parametrize(("method", "found"), [("GET", ["short"]), ("POST", LONG)])
def test_what_is_short_or_does_something_has_no_tag(method: str, found: Any) -> None:
    status, headers, body = ask(lambda _call: found, method=method, known='"x"')
    assert (status, json.loads(body), "etag" in headers) == (200, found, False)


@pytest.mark.parametrize("limit", ["BODY_SECONDS", "BODY_PAUSE"])
def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(app, limit, 0.05)
    begun: Pieces = [{"type": "http.request", "body": b"{", "more_body": True}]
    bodies = Bodies()
    status, _headers, answer = ask(raising(AssertionError("it is not called")), begun, bodies=bodies)
    assert (status, json.loads(answer)["code"]) == (408, "bad-request")
    assert bodies.held == 0


def test_bodies_hold_no_more_together_than_one_budget() -> None:
    """The forty that once held 265 MB: each is a body of eight MiB that stops before its end. A small one goes through
    meanwhile, and a large one when they have ended."""
    bodies, part, held = Bodies(), b"x" * 65_536, []

    async def many() -> None:
        stopped = asyncio.Event()

        def stopping() -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
            left = iter(range(100))

            async def receive() -> MutableMapping[str, Any]:
                held.append(bodies.held)
                if next(left, None) is None:
                    await stopped.wait()
                return {"type": "http.request", "body": part, "more_body": True}

            return receive

        async def read(receive: Any) -> bytearray:
            with bodies.open() as account:
                return await bodies.read(Request({"type": "http", "headers": []}, receive), account)

        async def whole() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def large() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b" " * (8 << 20), "more_body": False}

        stuck = [asyncio.create_task(read(stopping())) for _ in range(40)]
        for _ in range(300):
            await asyncio.sleep(0)
        assert await read(whole) == b"{}"
        waiting = asyncio.create_task(read(large))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        assert len(await waiting) == 8 << 20

    asyncio.run(many())
    assert max(held) <= (32 << 20) + 41 * FLOOR
    assert bodies.held == 0


def test_who_has_gone_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    begun: Pieces = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    assert ask(raising(AssertionError("it is not called")), begun)[0] == 400
    assert capsys.readouterr().err == ""
