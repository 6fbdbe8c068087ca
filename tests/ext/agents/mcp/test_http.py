"""``mudroom mcp --http``, spoken to by hand: who is let in, sessions, and clients that go away."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

import pytest
from wire import Web, mudroom, web

from conftest import Place, full_listing
from mudroom.ext.agents.mcp import http, message

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, client: Any) -> Iterator[Web]:
    """One server for the tests that change nothing."""
    place = Place(tmp_path_factory.mktemp("web"), client)
    place.write("a.txt", "one\n")
    with web(place) as one:
        yield one
    place.close()


PING = {"id": 1, "method": "ping"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer \xe9"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": None}, 415),
        ({"Accept": "text/html"}, 406),
        ({"Accept": "application/json"}, 406),
        ({"Mcp_Session_Id": "nothing"}, 404),
        ({}, 400),
    ],
    ids=range(16),
)
def test_who_is_not_let_in(served: Web, headers: dict[str, str | None], status: int) -> None:
    found, _headers, body = served.send(PING, **headers)
    assert found == status, body
    assert served.token.encode() not in body


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/mcp", 405), ("PUT", "/mcp", 405), ("POST", "/", 404)])
def test_other_methods_and_paths(served: Web, method: str, path: str, status: int) -> None:
    assert served.send(PING, method, path)[0] == status


def test_a_page_of_this_origin_and_a_browser_s_preflight(served: Web) -> None:
    session = served.initialize()
    origin = f"http://127.0.0.1:{served.port}"
    assert served.send(PING, Origin=origin, Mcp_Session_Id=session)[0] == 200
    status, headers, _body = served.send(b"", "OPTIONS", Origin="http://evil.example", Authorization=None)
    assert status == 403
    assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"jsonrpc": "2.0"}'])
def test_a_wrong_body_is_answered(served: Web, body: bytes) -> None:
    status, _headers, answer = served.send(body)
    assert status == 400
    assert json.loads(answer)["error"]["code"] in (message.PARSE_ERROR, message.INVALID_REQUEST)


def test_a_large_body_is_refused_before_it_is_read(served: Web) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as wire:
        head = "".join(f"{name}: {value}\r\n" for name, value in served.headers.items())
        wire.sendall(
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{head}Content-Length: 100000000\r\n\r\n".encode()
        )
        assert wire.recv(64).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_is_bounded_too(served: Web) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as wire:
        head = "".join(f"{name}: {value}\r\n" for name, value in served.headers.items())
        wire.sendall(
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        answer = b""
        try:
            for _piece in range(40):
                wire.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        except OSError:
            pass  # it has closed
        try:
            answer = wire.recv(64)
        except ConnectionResetError:
            return
        assert answer.startswith(b"HTTP/1.1 413 ")


def test_what_is_not_http_ends_its_connection_alone(served: Web) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as wire:
        wire.sendall(b"\x16\x03\x01\x02\x00\x01\x00\n\n\n" * 100)
        try:
            assert b" 200 " not in wire.recv(64)
        except ConnectionResetError:
            pass
    assert served.send(PING, Mcp_Session_Id=served.initialize())[0] == 200


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        (b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b"conflicting Content-Length headers"),
        (b"Content-Length: +3\r\n\r\n", b"bad Content-Length"),
        (b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", b"bad Content-Length"),
        (b"Transfer-Encoding: gzip, chunked\r\n\r\n", b"Only Transfer-Encoding: chunked is supported"),
        (b"Host: evil.example\r\n\r\n", b"Found multiple Host: headers"),
        (b"X: a\0b\r\n\r\n", b"illegal header line"),
        (b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", b"illegal chunk header"),
        (b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 200_000, b"Receive buffer too long"),
    ],
    ids=range(8),
)
def test_a_request_that_is_read_in_two_ways_is_told_why_not(served: Web, rest: bytes, why: bytes) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in served.headers.items())
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as wire:
        wire.sendall(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{head}".encode() + rest)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := wire.recv(4096):
                answer += data
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\nthis is not HTTP/1.1: " + why + b"\n")


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.McpListener]:
    """A listener that is never asked for a tool."""
    monkeypatch.setattr(http, "PATIENCE", 0.4)
    with http.McpListener(cast("Any", None), 0, "token") as here:
        yield here


def test_a_request_that_comes_a_byte_at_a_time_is_ended(listener: http.McpListener) -> None:
    """Anybody on this machine may connect."""
    threading.Thread(target=lambda: suppressed(listener.serve), daemon=True).start()
    slow = socket.create_connection(("127.0.0.1", listener.port), timeout=20)
    with slow:
        for sent, byte in enumerate(b"POST /mcp HTTP/1.1\r\nX: " + b"x" * 1000):  # noqa: B007
            if select.select([slow], [], [], 0.05)[0]:
                break
            slow.sendall(bytes([byte]))
        assert slow.recv(1) == b""
    assert sent < 100


def suppressed(serve: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):  # of the closed socket
        serve()


def test_a_shortage_of_descriptors_does_not_end_the_server(listener: http.McpListener) -> None:
    class Short:
        errors: ClassVar = [errno.EMFILE, errno.ECONNABORTED, errno.EBADF]

        def accept(self) -> Any:
            raise OSError(self.errors.pop(0), "x")

        def close(self) -> None:
            pass

    listener._socket.close()
    listener._socket = cast("Any", Short())
    with pytest.raises(OSError, match="x") as raised:
        listener.serve()
    assert raised.value.errno == errno.EBADF


def test_a_session_begins_and_ends(served: Web) -> None:
    session = served.initialize()
    status, _headers, body = served.send(PING, Mcp_Session_Id=session)
    assert (status, json.loads(body)["result"]) == (200, {})
    note = {"method": "notifications/initialized"}
    assert served.send(note, Mcp_Session_Id=session)[0] == 202
    assert served.send(b"", "DELETE", Mcp_Session_Id=session)[0] == 200
    assert served.send(b"", "DELETE", Mcp_Session_Id=session)[0] == 404
    assert served.send(PING, Mcp_Session_Id=session)[0] == 404


ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "web", "version": "1"},
}
LIST = {"id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/list"}, 200),
        ({"MCP_Protocol_Version": "2025-11-25", "Mcp_Method": "tools/list"}, 400),
        ({"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call"}, 400),
        ({"MCP_Protocol_Version": "2026-07-28"}, 400),
        ({"Mcp_Method": "tools/list"}, 400),
    ],
    ids=range(5),
)
def test_headers_of_an_enveloped_request_have_to_match(served: Web, headers: dict[str, str], status: int) -> None:
    found, _headers, body = served.send(LIST, **headers)
    assert found == status, body
    answer = json.loads(body)
    if status == 200:
        assert answer["result"]["resultType"] == "complete"
        assert answer["result"]["cacheScope"] == "private"
    else:
        assert answer["error"]["code"] == message.HEADER_MISMATCH


def test_an_unknown_revision_is_told_which_there_are(served: Web) -> None:
    meta = ENVELOPE | {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    status, _headers, body = served.send({"id": 1, "method": "tools/list", "params": {"_meta": meta}})
    assert status == 400
    assert json.loads(body)["error"]["data"]["supported"] == ["2026-07-28"]


_COUNT = itertools.count(100)


def call(served: Web, session: str, tool: str, **arguments: Any) -> Any:
    params = {"name": tool, "arguments": arguments}
    _status, _headers, body = served.send(
        {"id": next(_COUNT), "method": "tools/call", "params": params}, Mcp_Session_Id=session
    )
    return json.loads(body)["result"]["structuredContent"]


def opened(served: Web, count: int) -> list[str]:
    return [served.initialize() for _session in range(count)]


def test_clients_that_end_no_session_keep_nobody_out(place: Place) -> None:
    with web(place) as served:
        working, *others = opened(served, http.MOST_SESSIONS)
        call(served, working, "write", path="x", content="1")
        for session in others:
            served.send(PING, Mcp_Session_Id=session)
        opened(served, http.MOST_SESSIONS - 1)
        statuses = [served.send(PING, Mcp_Session_Id=session)[0] for session in (working, *others)]
        assert statuses == [200] + [404] * len(others), "those without a fork go first"


def enveloped(served: Web, client: str, method: str, /, **params: Any) -> tuple[int, str]:
    """Return the status and body of a request of a client without a session."""
    meta = ENVELOPE | {"io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"}}
    headers = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method}
    if "name" in params:
        headers["Mcp_Name"] = params["name"]
    body = {"id": 1, "method": method, "params": {**params, "_meta": meta}}
    status, _headers, answer = served.send(body, **headers)
    return status, answer.decode()


def test_names_of_clients_without_sessions_keep_nobody_out(place: Place) -> None:
    with web(place) as served:
        enveloped(served, "worker", "tools/call", name="write", arguments={"path": "x", "content": "mine"})
        for number in range(2 * http.MOST_SESSIONS):
            assert enveloped(served, f"client{number}", "tools/list")[0] == 200
        read = enveloped(served, "worker", "tools/call", name="read", arguments={"path": "x"})
        assert "mine" in read[1], "one with a fork would find another one, and is not told"


class Connected:
    """A connection of a client, as the listener sees it."""

    def __init__(self, fork: str | None, *, is_idle: bool = True) -> None:
        self._is_idle = is_idle
        self.workspace = type("W", (), {"fork_or_none": fork})()

    def is_idle(self) -> bool:
        return self._is_idle


class Ends:
    """A server that notes which connections are closed."""

    def __init__(self) -> None:
        self.ended: list[Connected] = []

    def close(self, connection: Connected) -> None:
        self.ended.append(connection)


def test_of_clients_with_forks_the_one_that_waits_longest_goes(listener: http.McpListener) -> None:
    server = Ends()
    listener._server = cast("Any", server)
    clients = [Connected(f"f{number}", is_idle=number != 0) for number in range(http.MOST_SESSIONS + 2)]
    sessions = [listener.opened(cast("Any", client)) for client in clients[: http.MOST_SESSIONS]]
    listener.of_session(sessions[1])
    for client in clients[http.MOST_SESSIONS :]:
        listener.opened(cast("Any", client))
    assert server.ended == clients[2:4], "the first has a call, and the second was heard of last"


def test_no_more_clients_than_agreed_while_all_have_calls(listener: http.McpListener) -> None:
    server = Ends()
    listener._server = cast("Any", server)
    for _number in range(http.MOST_SESSIONS):
        listener.opened(cast("Any", Connected(None, is_idle=False)))
    with pytest.raises(http._Refused, match="64 clients are served: wait for one of them, or end one"):
        listener.opened(cast("Any", Connected(None)))
    assert server.ended == []


def test_two_clients_on_one_fork_and_two_with_forks_of_their_own(place: Place) -> None:
    with web(place, "--fork", "shared") as served:
        first, second = served.initialize(), served.initialize()
        call(served, first, "write", path="x", content="1")
        assert call(served, second, "read", path="x")["text"] == "1"
    with web(place) as served:
        first, second = served.initialize(), served.initialize()
        call(served, first, "write", path="x", content="1")
        assert "error" in call(served, second, "read", path="x")
        assert call(served, first, "status")["fork"] != call(served, second, "status")["fork"]


def test_a_client_that_hangs_up_in_mid_command_ends_it(place: Place) -> None:
    before = full_listing(place.project)
    with web(place, "--fork", "f") as served:
        session = served.initialize()
        command = {"command": "touch began; echo up; exec sleep 1000"}
        params = {"name": "bash", "arguments": command, "_meta": {"progressToken": 1}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as wire:
            headers = served.headers | {"Mcp-Session-Id": session, "Content-Length": str(len(body))}
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            wire.sendall(f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{head}\r\n".encode() + body)
            heard = b""
            while b"up" not in heard:  # printed when the file is there
                heard += wire.recv(4096)
            assert b"text/event-stream" in heard
        done = call(served, session, "bash", command="ls; pgrep -x sleep || echo none")
        assert done["output"] == "began\nnone\n"
    assert full_listing(place.project) == before
    assert mudroom(place, "diff", "f").returncode == 0


def test_the_end_of_the_server_ends_what_runs(place: Place) -> None:
    with web(place, "--fork", "f") as served:
        session = served.initialize()
        call(served, session, "bash", command="exec sleep 1000", background=True)
        call(served, session, "write", path="x", content="1")
        served.process.terminate()
        assert served.process.wait(60) == 0
    assert place.session().forks.files("f").read("x") == b"1"


def test_a_port_that_is_taken_is_told(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = mudroom(place, "mcp", "--http", str(taken.getsockname()[1]))
    assert done.returncode == 125
    assert "in use" in done.stderr and "Traceback" not in done.stderr
