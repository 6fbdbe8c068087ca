"""``mudroom serve`` forwards messages of the page's user to a running agent whose port is shown, as data."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from clocks import give_way
from conftest import Place
from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.ext.agents.core.card_fields import parse_card
from mudroom.ext.agents.core.fork_consent import ForkGrants, ShownPort
from mudroom.ext.agents.links.agent_door import OpenAgent
from mudroom.ext.agents.links.fork_grants import edit_grants
from mudroom.ext.agents.session.run_agent import run_agent
from mudroom.ext.web.server import agent_forward
from mudroom.session import Session
from test_serve_verb import serving, write_card

AGENT = """
import http.server, json
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["content-length"])))
        kind = {"message/stream": "text/event-stream", "GetTask": "text/html"}.get(call["method"], "application/json")
        told = {"id": call["id"], "path": self.path, "headers": sorted(name.lower() for name in self.headers)}
        body = json.dumps(told).encode()
        body = b"data: " + body + b"\\n\\n" if kind == "text/event-stream" else body
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("set-cookie", "mudroom=stolen")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_words): pass
server = http.server.HTTPServer(("127.0.0.1", 9123), Answer)
open("ready", "w").close()
server.serve_forever()
"""
CARD = {"agentId": "coder", "sandboxLevel": 1, "endpoint": "http://localhost:9123/a2a"}


@contextmanager
def running(session: Session, fork: str = "coder-1") -> Iterator[None]:
    session.forks.new(fork)
    argv = [sys.executable.encode(), b"-c", AGENT.encode()]
    thread = threading.Thread(target=lambda: run_agent(session, parse_card(CARD), argv, fork=fork, timeout=80))
    thread.start()
    try:
        while not Path(session.vault.fork(fork).upper.decode(), "ready").exists():
            assert thread.is_alive()
            give_way()
        yield
    finally:
        session.sandboxes.interrupt(fork=fork)
        thread.join()


def call(method: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": {}})


def test_messages_reach_the_running_agent(place: Place) -> None:
    path = "/agents/coder/a2a"
    with place.session() as session, serving(place, "--card", write_card(place, "coder")) as served:

        def sent(method: str, where: str = path) -> tuple[int, str]:
            return served.get(where, "POST", call(method), **served.bearer)

        assert "coder is not running; mudroom agent run starts it" in sent("SendMessage")[1]
        with running(session):
            refused = sent("SendMessage")[1]
            assert "mudroom net show 9123 --fork coder-1" in refused and "-32004" in refused
            fork = session.vault.fork("coder-1")
            edit_grants(session.vault, fork, lambda _grants: ForkGrants(shows=(ShownPort(9123),)))
            assert served.get(path, "POST", call("SendMessage"))[0] == 401, "for the user of the page alone"
            status, text = sent("SendMessage")
            told = json.loads(text)
            assert (status, told["id"], told["path"]) == (200, 7, "/a2a")
            assert "authorization" not in told["headers"] and "cookie" not in told["headers"], told
            status, text = sent("message/stream")
            assert (status, text[:6], json.loads(text[6:])["id"]) == (200, "data: ", 7)
            status, text = sent("GetTask")
            assert status == 502 and "neither JSON nor an event stream" in text, "no page of an agent's in our origin"
            assert json.loads(sent("tasks/pushNotificationConfig/set")[1])["error"]["code"] == -32004
            assert sent("SendMessage", path + "?fork=coder-1")[0] == 200
            assert "is not running" in sent("SendMessage", path + "?fork=other")[1]
            with running(session, "coder-2"):
                several = "coder is running in several forks; add ?fork= to the address: coder-1, coder-2"
                assert json.loads(sent("SendMessage")[1])["error"]["message"] == several
        assert "coder is not running" in sent("SendMessage")[1]
        events = [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "net"]
    assert {"forwarded": "message/stream", "agent": "coder", "port": 9123} in events


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "it closed the connection without a response"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", "it closed the connection without a response"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n",
            "its answer is neither JSON nor an event stream",
        ),
        (
            b"HTTP/1.1 999 Odd\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
            "its answer has the status 999",
        ),
        (
            b"HTTP/1.1 304 Not Modified\r\nContent-Type: application/json\r\n\r\n",
            "its answer has the status 304",
        ),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000, "it answered with 103 and with nothing else"),
        (b"HELO\r\n\r\n", "its answer is not HTTP: illegal status line: bytearray(b'HELO')"),
        (None, "it sent no answer within 0.05 s"),
    ],
)
def test_a_server_that_answers_wrongly(answer: bytes | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an error of JSON-RPC; its connection is closed."""
    monkeypatch.setattr(agent_forward, "IDLE", 0.05)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    opened = OpenAgent(ours, AgentEndpoint("coder", 1, 9123, "/a2a"), "coder-1")
    with theirs, theirs.makefile("rb") as stream:
        if answer is not None:
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)
        response = asyncio.run(agent_forward._exchange(opened, b"{}", [], {"id": 7}))
        sent = stream.read()  # to its end
    assert response.status_code == 502
    assert json.loads(bytes(response.body))["error"] == {"code": -32603, "message": f"The agent's server: {why}"}
    assert sent.startswith(b"POST /a2a") and sent.endswith(b"{}")


def test_a_server_that_never_ends_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte at a time is no answer either, nor is one that does not read."""
    monkeypatch.setattr(agent_forward, "IDLE", 0.2)

    async def answered(body: bytes, server: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> Response:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        opened = OpenAgent(ours, AgentEndpoint("coder", 1, 9123, "/a2a"), "coder-1")
        with theirs:
            talking = asyncio.create_task(server(theirs))
            try:
                async with asyncio.timeout(20):
                    return await agent_forward._exchange(opened, body, [], {"id": 7})
            finally:
                talking.cancel()

    async def dribble(channel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(channel, b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            await loop.sock_sendall(channel, b"x")
            await asyncio.sleep(0)  # give way

    async def deaf(_channel: socket.socket) -> None:
        return

    for body, server in ((b"{}", dribble), (b" " * agent_forward.BODY_LIMIT, deaf)):
        response = asyncio.run(answered(body, server))
        why = "The agent's server: it sent no answer within 0.2 s"
        assert json.loads(bytes(response.body))["error"]["message"] == why
