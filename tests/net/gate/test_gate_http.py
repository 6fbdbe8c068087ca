"""Plain HTTP through a real gate process: each request judged by itself and written anew, smuggling refused."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.core.network.host_rules import HostRule
from origin import Web
from tiers import half
from town import OpenGuard, Town, read_all, read_until


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as town:
        yield town


def local(town: Town, *names: str) -> None:
    town.names({name: [["127.0.0.1"]] for name in names})


def allow(name: str, port: int, methods: tuple[str, ...] = (), paths: tuple[str, ...] = ()) -> HostRule:
    return HostRule("allow", name, (port,), methods, paths, private=True, source="policy.yaml:1")


def one(guard: OpenGuard, request: bytes) -> bytes:
    """What the gate says to a client that sends just this."""
    client = guard.connect(request)
    client.shutdown(socket.SHUT_WR)
    return read_all(client)


def test_a_request_is_passed_on_with_the_gates_own_line_host_and_framing(town: Town) -> None:
    web = Web()
    port = town.serve(web)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    client = guard.connect(
        b"GET http://WEB.example.:%d/a?b=secret HTTP/1.1\r\nhost: web.example:%d\r\nAccept: */*\r\nX-Drop: 1\r\n"
        b"Connection: keep-alive, x-drop\r\nProxy-Authorization: Basic eDp5\r\nTE: trailers\r\n\r\n" % (port, port)
    )
    assert read_until(client, b"hello\n").startswith(b"HTTP/1.1 200 ")
    client.close()
    assert web.requests == [b"GET /a?b=secret HTTP/1.1\r\nHost: web.example:%d\r\nAccept: */*\r\n\r\n" % port]
    flow = guard.flow()
    assert (flow.way, flow.host, flow.method, flow.path, flow.status) == ("http", "web.example", "GET", "/a", 200)
    assert (flow.verdict, flow.rule, flow.address) == ("allow", "policy.yaml:1", "127.0.0.1")
    assert flow.sent == len(web.requests[0])
    assert flow.received > len(b"hello\n")


def test_every_request_of_a_kept_alive_connection_is_judged(town: Town) -> None:
    good, other = Web(), Web(b"other\n")
    port, second = town.serve(good), town.serve(other)
    local(town, "good.example", "other.example")
    guard = town.guard(allow("good.example", port), allow("other.example", second))
    connection = http.client.HTTPConnection(guard.where[0], guard.where[1], timeout=20)
    for _ in range(3):
        connection.request("GET", f"http://good.example:{port}/")
        assert connection.getresponse().read() == b"hello\n"
    connection.request("GET", f"http://other.example:{second}/")
    assert connection.getresponse().read() == b"other\n"
    connection.request("GET", f"http://evil.example:{port}/")
    response = connection.getresponse()
    assert (response.status, b"mudroom net allow evil.example" in response.read()) == (403, True)
    connection.close()
    assert (good.connections, len(good.requests), len(other.requests)) == (1, 3, 1)
    guard.wait(flows=5)
    assert [flow.verdict for flow in guard.flows] == ["allow"] * 4 + ["deny"]
    assert "evil.example" not in town.lookups()


def test_requests_in_a_row_without_waiting_are_judged_one_by_one(town: Town) -> None:
    web = Web()
    port = town.serve(web)
    local(town, "web.example", "evil.example")
    guard = town.guard(allow("web.example", port))
    request = b"GET http://%s.example:%d/ HTTP/1.1\r\nHost: %s.example:%d\r\n\r\n"
    good, evil = (request % (name, port, name, port) for name in (b"web", b"evil"))
    client = guard.connect(good + good + evil + good)
    said = read_all(client)
    assert [said.count(b"HTTP/1.1 %d " % status) for status in (200, 403)] == [2, 1]
    assert len(web.requests) == 2
    assert town.lookups() == ["web.example"]


def test_a_server_that_closes_after_every_response(town: Town) -> None:
    web = Web(head=b"HTTP/1.1 200 OK\r\nConnection: close\r\n")
    port = town.serve(web)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    head = b"POST http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\nContent-Length: 1\r\n" % (port, port)
    client = guard.connect((head + b"\r\nx") * 2 + head + b"Connection: close\r\n\r\nx")
    assert read_all(client).count(b"HTTP/1.1 200 ") == 3
    assert web.connections == 3


def test_what_stands_in_a_body_is_no_request(town: Town) -> None:
    web = Web()
    port = town.serve(web)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    inner = b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    head = b"POST http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\nContent-Length: %d\r\n\r\n"
    client = guard.connect(head % (port, port, len(inner)) + inner)
    read_until(client, b"hello\n")
    client.close()
    assert guard.flow().host == "web.example"
    assert web.requests[0].endswith(b"\r\n\r\n" + inner)


@pytest.mark.parametrize(("method", "status"), [(b"GET", 200), (b"POST", 502)])
def test_a_server_that_closed_what_was_kept_open_is_asked_again_if_that_is_harmless(
    town: Town, method: bytes, status: int
) -> None:
    answers: list[socket.socket] = []

    def once(client: socket.socket) -> None:
        answers.append(client)
        read_until(client, b"\r\n\r\n")
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")
        client.recv(10)  # the next request is on its way when it closes

    port = town.serve(once)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    request = b"%s http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\n\r\n"
    client = guard.connect(request % (b"GET", port, port))
    read_until(client, b"hello\n")
    client.sendall(request % (method, port, port))
    assert read_until(client, b"\n").startswith(b"HTTP/1.1 %d " % status)
    assert len(answers) == (2 if status == 200 else 1)


def test_methods_and_paths_are_the_rules(town: Town) -> None:
    web = Web()
    port = town.serve(web)
    local(town, "api.example")
    guard = town.guard(allow("api.example", port, methods=("GET",), paths=("/public",)))
    for method, path, status in (("GET", "/public/x", 200), ("GET", "/private", 403), ("POST", "/public/x", 403)):
        connection = http.client.HTTPConnection(guard.where[0], guard.where[1], timeout=20)
        connection.request(method, f"http://api.example:{port}{path}", headers={"Content-Length": "0"})
        assert connection.getresponse().status == status
        connection.close()
    connect = b"CONNECT api.example:%d HTTP/1.1\r\nHost: api.example:%d\r\n\r\n" % (port, port)
    assert one(guard, connect).startswith(b"HTTP/1.1 403 ")  # what goes through a tunnel has no method
    assert len(web.requests) == 1


@pytest.mark.parametrize(
    "name",
    ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL",
     "X_HTTP_Method_Override"],
)  # fmt: skip
def test_a_header_that_names_another_method_or_path_opens_nothing(town: Town, name: str) -> None:
    web = Web()
    port = town.serve(web)
    local(town, "api.example", "all.example", "not.example")
    guard = town.guard(
        allow("api.example", port, methods=("POST",), paths=("/public",)),
        allow("all.example", port),
        allow("not.example", port),
        HostRule("deny", "not.example", (port,), ("DELETE",)),
        HostRule("deny", "not.example", (port,), (), ("/private",)),
    )

    def post(host: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(guard.where[0], guard.where[1], timeout=20)
        connection.request("POST", f"http://{host}:{port}/public/x", headers={"Content-Length": "0", **headers})
        answer = connection.getresponse()
        said = answer.read().decode()
        connection.close()
        return answer.status, said

    assert [post(host)[0] for host in ("api.example", "all.example", "not.example")] == [200, 200, 200]
    status, said = post("api.example", **{name: "/private"})
    assert status == 403
    assert f"is for other methods or paths than POST /public/x #{name.lower()}" in said or (
        f"is for other methods or paths than POST ({name.lower().replace('_', '-')}) /public/x" in said
    )
    assert post("not.example", **{name: "/private"})[0] == 403, "it does not evade a deny"
    assert post("all.example", **{name: "/private"})[0] == 200, "a rule without them lets every request through"
    assert len(web.requests) == 4


def test_a_kept_alive_connection_is_vetted_by_the_present_rules(town: Town) -> None:
    web = Web()
    port = town.serve(web)
    local(town, "api.example")
    private = allow("api.example", port)
    guard = town.guard(private)

    def get(connection: http.client.HTTPConnection) -> tuple[int, str]:
        connection.request("GET", f"http://api.example:{port}/")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    for rules, why in (
        ([private._replace(private=False)], "127.0.0.1 is an address of this machine"),
        ([private, HostRule("deny", "127.0.0.0/8")], "127.0.0.1 is denied"),
    ):
        connection = http.client.HTTPConnection(guard.where[0], guard.where[1], timeout=20)
        assert get(connection)[0] == 200
        assert get(connection)[0] == 200
        guard.guard.update(rules)
        status, said = get(connection)
        assert (status, why in said) == (403, True), said
        connection.close()
        guard.guard.update([private])
    assert len(web.requests) == 4


def test_bodies_of_both_kinds_arrive_whole_and_trailers_stay_behind(town: Town) -> None:
    web = Web()
    port = town.serve(web)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    head = b"POST http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\n" % (port, port)
    client = guard.connect(head + b"Content-Length: 5\r\n\r\nfirst")
    assert b"hello\n" in read_until(client, b"hello\n")
    client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n")
    read_until(client, b"hello\n")
    first, second = web.requests
    assert first.endswith(b"\r\n\r\nfirst")
    assert second.lower().count(b"transfer-encoding: chunked") == 1
    assert b"content-length" not in second.lower()
    assert b"abc" in second
    assert b"railer" not in second


@pytest.mark.slow
def test_a_large_body_goes_through_both_ways(town: Town) -> None:
    body = bytes(range(256)) * 40_000
    web = Web(body)
    port = town.serve(web)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    connection = http.client.HTTPConnection(guard.where[0], guard.where[1], timeout=20)
    connection.request("PUT", f"http://web.example:{port}/", body=body)
    assert connection.getresponse().read() == body
    assert web.requests[0].endswith(body)
    connection.close()


TWICE = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n",
    "a list of lengths": b"Content-Length: 5, 5\r\n",
    "length and coding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n",
    "a coding after another": b"Transfer-Encoding: gzip, chunked\r\n",
    "a coding in disguise": b"Transfer-Encoding: \x0bchunked\r\n",
    "a space before the colon": b"Transfer-Encoding : chunked\r\n",
    "a folded line": b"X: a\r\n Transfer-Encoding: chunked\r\n",
    "a folded line with a tab": b"X: a\r\n\tb\r\n",
    "a signed length": b"Content-Length: +5\r\n",
    "a negative length": b"Content-Length: -1\r\n",
    "a length in hex": b"Content-Length: 0x5\r\n",
    "a bare line feed": b"X: a\nTransfer-Encoding: chunked\r\n",
    "a bare carriage return": b"X: a\rTransfer-Encoding: chunked\r\n",
    "a NUL": b"X: a\0b\r\n",
    "no name": b": x\r\n",
    "no colon": b"nothing\r\n",
    "two hosts": b"Host: evil.example\r\n",
}


@pytest.mark.parametrize("name", half(TWICE))
def test_what_two_servers_could_read_in_two_ways_is_refused(town: Town, name: str) -> None:
    fields = TWICE[name]
    web = Web()
    port = town.serve(web)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    where = b"web.example:%d" % port
    said = one(
        guard,
        b"POST http://%s/ HTTP/1.1\r\nHost: %s\r\n%s\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n" % (where, where, fields),
    )
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1
    assert guard.flow().verdict == "deny"
    assert web.connections == 0


FIRST_LINES = {
    "no absolute form": (b"GET / HTTP/1.1", b"web.example", 400),
    "another host": (b"GET http://web.example:PORT/ HTTP/1.1", b"evil.example:PORT", 403),
    "another port": (b"GET http://web.example:PORT/ HTTP/1.1", b"web.example:1", 403),
    "no port in host": (b"GET http://web.example:PORT/ HTTP/1.1", b"web.example", 403),
    "a user": (b"GET http://web.example@evil.example:PORT/ HTTP/1.1", b"web.example:PORT", 400),
    "a backslash": (b"GET http://evil.example\\@web.example:PORT/ HTTP/1.1", b"web.example:PORT", 400),
    "a fragment": (b"GET http://web.example:PORT#@evil.example/ HTTP/1.1", b"web.example:PORT", 400),
    "https": (b"GET https://web.example:PORT/ HTTP/1.1", b"web.example:PORT", 400),
    "version 2": (b"GET http://web.example:PORT/ HTTP/2.0", b"web.example:PORT", 400),
    "version 0.9": (b"GET http://web.example:PORT/", b"web.example:PORT", 400),
    "two spaces": (b"GET  http://web.example:PORT/ HTTP/1.1", b"web.example:PORT", 400),
    "a tab": (b"GET\thttp://web.example:PORT/ HTTP/1.1", b"web.example:PORT", 400),
    "a space at the end": (b"GET http://web.example:PORT/ HTTP/1.1 ", b"web.example:PORT", 400),
    "double brackets": (b"GET http://[[::1]]:PORT/ HTTP/1.1", b"[[::1]]:PORT", 400),
    "an address in hex": (b"GET http://0x7f.1:PORT/ HTTP/1.1", b"0x7f.1:PORT", 400),
    "an empty host": (b"GET http://web.example:PORT/ HTTP/1.1", b"", 400),
}


@pytest.mark.parametrize("name", half(FIRST_LINES))
def test_games_with_the_first_line_and_the_host(town: Town, name: str) -> None:
    line, host, status = FIRST_LINES[name]
    web = Web()
    port = town.serve(web)
    local(town, "web.example", "evil.example")
    guard = town.guard(allow("web.example", port))
    request = b"%s\r\nHost: %s\r\n\r\n" % (line, host)
    said = one(guard, request.replace(b"PORT", b"%d" % port))
    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert web.connections == 0
    assert town.lookups() == []


def test_requests_through_a_tunnel_are_judged_as_well(town: Town) -> None:
    """A tunnel for one host carries no request for another one, in whatever form."""
    web = Web()
    port = town.serve(web)
    local(town, "web.example", "evil.example")
    guard = town.guard(allow("web.example", port))
    connect = b"CONNECT web.example:%d HTTP/1.1\r\nHost: web.example:%d\r\n\r\n" % (port, port)
    for line, host, ok in (
        (b"/", b"web.example:%d" % port, True),
        (b"http://web.example:%d/" % port, b"web.example:%d" % port, True),
        (b"http://evil.example:%d/" % port, b"evil.example:%d" % port, False),
        (b"/", b"evil.example:%d" % port, False),
        (b"/", b"127.0.0.1:%d" % port, False),
    ):
        client = guard.connect(connect)
        assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        client.sendall(b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (line, host))
        assert read_all(client).startswith(b"HTTP/1.1 200 " if ok else b"HTTP/1.1 403 "), (line, host)
    assert len(web.requests) == 2
    assert "evil.example" not in town.lookups()


def upgrade(port: int, protocol: bytes) -> bytes:
    return (
        b"GET http://web.example:%d/ws HTTP/1.1\r\nHost: web.example:%d\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n"
        % (port, port, protocol)
    )


def switch(client: socket.socket) -> None:
    head = read_until(client, b"\r\n\r\n")
    client.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: y\r\n\r\n<")
    assert b"Upgrade: websocket" in head
    while data := client.recv(100):
        client.sendall(data.upper())


def test_a_websocket_is_bytes_after_101(town: Town) -> None:
    port = town.serve(switch)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    client = guard.connect(upgrade(port, b"websocket") + b"early ")
    client.sendall(b"late")
    said = read_until(client, b"LATE")
    assert said.startswith(b"HTTP/1.1 101 ")
    assert said.endswith(b"\r\n\r\n<EARLY LATE")
    client.close()
    assert (guard.flow().status, guard.flow().received > 10) == (101, True)


def test_an_upgrade_to_anything_else_is_not_passed_on(town: Town) -> None:
    """HTTP/2 in clear would carry requests that nobody judges."""
    web = Web()
    port = town.serve(web)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    client = guard.connect(upgrade(port, b"h2c"))
    assert read_until(client, b"hello\n").startswith(b"HTTP/1.1 200 ")
    assert b"pgrade" not in web.requests[0]


def test_a_rule_about_requests_lets_no_websocket_through(town: Town) -> None:
    port = town.serve(switch)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port, paths=("/ws",)))
    assert one(guard, upgrade(port, b"websocket")).startswith(b"HTTP/1.1 403 ")


def test_100_continue_goes_through(town: Town) -> None:
    def patient(client: socket.socket) -> None:
        head = read_until(client, b"\r\n\r\n")
        assert b"100-continue" in head
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        read_until(client, b"body")
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    port = town.serve(patient)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    client = guard.connect(
        b"PUT http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\n" % (port, port)
        + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    )
    assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
    client.sendall(b"body")
    assert read_until(client, b"ok").startswith(b"HTTP/1.1 200 ")


BAD_SERVERS = {
    "garbage": (b"what?\r\n\r\n", 502),
    "nothing": (b"", 502),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502),
    "an endless head": (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, 502),
    "a switch that nobody asked for": (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        502,
    ),
}


@pytest.mark.parametrize(("data", "status"), BAD_SERVERS.values(), ids=BAD_SERVERS.keys())
def test_a_server_that_talks_nonsense_is_not_passed_on(town: Town, data: bytes, status: int) -> None:
    def talk(client: socket.socket) -> None:
        read_until(client, b"\r\n\r\n")
        client.sendall(data)

    port = town.serve(talk)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    request = b"GET http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\n\r\n" % (port, port)
    client = guard.connect(request)
    assert read_all(client).startswith(b"HTTP/1.1 %d " % status)
    assert guard.flow().error


def test_a_server_that_dies_in_the_middle_leaves_no_whole_response(town: Town) -> None:
    def talk(client: socket.socket) -> None:
        read_until(client, b"\r\n\r\n")
        client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")

    port = town.serve(talk)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    connection = http.client.HTTPConnection(guard.where[0], guard.where[1], timeout=20)
    connection.request("GET", f"http://web.example:{port}/")
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        connection.getresponse().read()
    connection.close()
    assert guard.flow().error


def test_a_client_that_ends_within_its_body_ends_the_request(town: Town) -> None:
    got = []

    def talk(client: socket.socket) -> None:
        read_until(client, b"\r\n\r\n")
        try:
            got.append(client.recv(100))
            got.append(client.recv(100))
        except ConnectionError:
            got.append(b"reset")

    port = town.serve(talk)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    client = guard.connect(
        b"POST http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\nContent-Length: 9\r\n\r\nhalf" % (port, port)
    )
    client.close()
    assert guard.flow().error == "the client ended within a request"
    assert b"".join(got) in (b"half", b"halfreset", b"reset", b"")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_gets_pages_and_says_why_not(town: Town) -> None:
    web = Web()
    port = town.serve(web)
    local(town, "web.example")
    guard = town.guard(allow("web.example", port))
    proxy = "http://{}:{}".format(*guard.where)
    urls = [f"http://web.example:{port}/1", f"http://web.example:{port}/2"]
    done = subprocess.run(["curl", "-sS", "-x", proxy, *urls], capture_output=True, timeout=30, check=True)
    assert done.stdout == b"hello\nhello\n"
    assert web.connections == 1
    done = subprocess.run(
        ["curl", "-sS", "-x", proxy, "http://evil.example/"], capture_output=True, timeout=30, check=True
    )
    assert done.stdout.startswith(b"mudroom: evil.example:80 is not allowed")


def test_a_body_that_comes_no_further_ends(tmp_path: Path) -> None:
    web = Web()
    with Town(tmp_path, constants={"gate.dialogue.BODY_IDLE": 0.2}) as town:
        port = town.serve(web)
        local(town, "web.example")
        guard = town.guard(allow("web.example", port))
        head = b"POST http://web.example:%d/ HTTP/1.1\r\nHost: web.example:%d\r\nContent-Length: 9\r\n\r\n1234"
        answer = read_all(guard.connect(head % (port, port)))
        assert answer.startswith(b"HTTP/1.1 502 "), answer
        assert "sent no more of its body" in guard.flow().error
