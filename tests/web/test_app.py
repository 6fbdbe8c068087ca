"""What an endpoint raises, gives and waits for, as who has asked is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra web")

from mudroom.errors import ForkMoved, MudroomError, UsageError
from mudroom.web import app
from mudroom.web.app import Rooms
from mudroom.web.endpoint import Call, Endpoint, Raw, Refusal
from mudroom.web.shape import Done

Pieces = list[dict[str, Any]]
WHOLE: Pieces = [{"type": "http.request", "body": b'{"done": true}', "more_body": False}]


def ask(handle: Callable[[Call], Any], pieces: Pieces = WHOLE, query: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """A POST to an endpoint with this handler."""
    one = Endpoint("POST", "/x", "", handle, Done, Done)
    house: Any = None
    rooms = Rooms([app._only("POST", "/api/v1/x", app._serving(one, house))])
    sent: list[MutableMapping[str, Any]] = []
    waiting = list(pieces)

    async def receive() -> MutableMapping[str, Any]:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/api/v1/x", "headers": [], "query_string": query}
    asyncio.run(rooms(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:])


def raising(error: Exception) -> Callable[[Call], Any]:
    def handle(_call: Call) -> Any:
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


def impossible(_call: Call) -> Any:
    return {"a": "\ud800"}


@pytest.mark.parametrize(
    "handle",
    [raising(ValueError("a secret\x1b[2J\nof ours")), raising(RecursionError()), raising(MemoryError()), impossible],
)
def test_a_fault_of_ours_is_told_on_stderr_in_one_line(
    handle: Callable[[Call], Any], capsys: pytest.CaptureFixture[str]
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


def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.05)
    begun: Pieces = [{"type": "http.request", "body": b"{", "more_body": True}]
    status, _headers, body = ask(raising(AssertionError("it is not called")), begun)
    assert (status, json.loads(body)["code"]) == (408, "bad-request")


def test_who_has_gone_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    begun: Pieces = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    assert ask(raising(AssertionError("it is not called")), begun)[0] == 400
    assert capsys.readouterr().err == ""
