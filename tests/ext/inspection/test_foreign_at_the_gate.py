"""A command's own credentials at the host of a credential, through a real gate process: HTTP/1, HTTP/2, websockets,
tunnels, plain HTTP."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterator

import pytest

from town import OpenGuard, Town, read_all, read_until

pytest.importorskip("cryptography", reason="inspection needs the library cryptography")
pytest.importorskip("h2", reason="inspection needs the library h2")
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, ResponseReceived, StreamEnded, StreamReset
from mirror import HOST, REAL, Place, build, read_head

from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Foreign

STRANGER = b"sk-stranger-" + b"7" * 30
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("foreign")
    with Town(directory) as town:
        yield build(town, directory)


class Server:
    """Keeps the heads of requests and answers all of them the same."""

    def __init__(self, answer: bytes = FINE) -> None:
        self.heads: list[bytes] = []
        self.answer = answer

    def talk(self, channel: socket.socket | ssl.SSLSocket) -> None:
        while head := read_head(channel):  # type: ignore[arg-type]
            self.heads.append(head)
            channel.sendall(self.answer)


def request(port: int, line: bytes, *fields: bytes) -> bytes:
    where = b"%s:%d" % (HOST.encode(), port)
    return b"\r\n".join((line + b" HTTP/1.1", b"Host: " + where, *fields, b"Connection: close", b"", b""))


def ask(place: Place, guard: OpenGuard, port: int, line: bytes, *fields: bytes) -> bytes:
    inside = place.tunnel(guard, port)
    inside.sendall(request(port, line, *fields))
    said = read_all(inside)
    inside.close()
    return said


def own(place: Place) -> bytes:
    return b"Authorization: Bearer " + place.credential.placeholder.encode()


CASES = [
    (b"POST /v1/files", (b"Authorization: Bearer " + STRANGER,)),
    (b"POST /v1/files", (b"X-Api-Key: " + STRANGER,)),
    (b"POST /v1/files", (b"PRIVATE-TOKEN: stranger",)),
    (b"POST /v1/files", (b"X-Goog-Api-Key: stranger",)),
    (b"POST /v1/files", (b"Authorization: Basic " + base64.b64encode(b"stranger:password"),)),
    (b"POST /v1/files?key=stranger", ()),
    (b"POST /v1/files?x=1&Access%5FToken=stranger", ()),
    (b"POST /v1/files", (b"Cookie: session=stranger",)),
    (b"GET /socket", (b"Upgrade: websocket", b"Sec-WebSocket-Protocol: bearer.stranger")),
    (b"POST /v1/files", (b"X-Anything: " + STRANGER,)),
]


def test_a_foreign_credential_is_refused_with_a_reason_and_never_sent(place: Place) -> None:
    """Also beside the user's own."""
    server = Server()
    port = place.serve(server.talk)
    guard = place.guard(port)
    number = 0
    for line, fields in CASES:
        for more in ((), (own(place),)):
            said = ask(place, guard, port, line, *fields, *more)
            assert said.startswith(b"HTTP/1.1 403 "), (line, fields)
            assert b"a credential that is not yours" in said
            assert b"only TOKEN goes through" in said and b"--foreign strip" in said
            number += 1
    guard.wait(flows=number)
    assert {flow.verdict for flow in guard.flows} == {"deny"}
    assert all("a credential that is not yours" in flow.reason for flow in guard.flows)
    assert not any(word in repr(guard.flows) for word in ("stranger", "7" * 30))
    assert server.heads == []


def test_a_foreign_credential_is_left_out_where_the_rule_says_so(place: Place) -> None:
    for line, fields in CASES:
        server = Server()
        port = place.serve(server.talk)
        guard = place.guard(port, foreign="strip")
        said = ask(place, guard, port, line, *fields)
        assert said.endswith(b"fine"), said
        (head,) = server.heads
        assert b"stranger" not in head, (line, head)
        assert head.startswith(line.partition(b"?")[0])
        assert ask(place, guard, port, line, *fields, own(place)).endswith(b"fine") or b"Authorization" in fields[0]
        assert b"stranger" not in server.heads[-1]


def test_a_foreign_credential_passes_where_the_user_says_so(place: Place) -> None:
    server = Server()
    port = place.serve(server.talk)
    guard = place.guard(port, foreign="allow")
    assert ask(place, guard, port, b"GET /", b"X-Api-Key: " + STRANGER).endswith(b"fine")
    assert STRANGER in server.heads[0]


def test_proxy_authorization_and_users_in_addresses_reach_no_server(place: Place) -> None:
    server = Server()
    port = place.serve(server.talk)
    guard = place.guard(port)
    ask(place, guard, port, b"GET /", b"Proxy-Authorization: Basic c3RyYW5nZXI=", own(place))
    assert b"Proxy-Authorization" not in server.heads[0]
    said = ask(place, guard, port, b"GET http://stranger:pass@%s:%d/" % (HOST.encode(), port), own(place))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert len(server.heads) == 1


def test_cookies_that_the_server_has_set_for_the_user_come_back(place: Place) -> None:
    cookies = b"Set-Cookie: sid=abc; Path=/; Secure\r\nSet-Cookie: n=2"
    server = Server(b"HTTP/1.1 200 OK\r\n%s\r\nContent-Length: 4\r\n\r\nfine" % cookies)
    port = place.serve(server.talk)
    guard = place.guard(port)
    assert ask(place, guard, port, b"POST /login").endswith(b"fine")
    assert ask(place, guard, port, b"GET /", b"Cookie: sid=abc").startswith(b"HTTP/1.1 403 "), "not set for the user"
    assert ask(place, guard, port, b"GET /", own(place)).endswith(b"fine")
    assert ask(place, guard, port, b"GET /", b"Cookie: sid=abc; n=2", own(place)).endswith(b"fine")
    assert b"Cookie: sid=abc; n=2" in server.heads[-1]
    said = ask(place, guard, port, b"GET /", b"Cookie: sid=abc; other=3", own(place))
    assert said.startswith(b"HTTP/1.1 403 ") and b"the cookie other" in said


def test_plain_http_to_the_host_is_held_to_the_same(place: Place) -> None:
    server = Server()
    port = place.town.serve(server.talk)
    guard = place.guard(port)
    where = b"%s:%d" % (HOST.encode(), port)
    for line, fields in CASES[:8]:
        raw = guard.connect(request(port, line.replace(b" /", b" http://%s/" % where), *fields))
        assert read_all(raw).startswith(b"HTTP/1.1 403 "), line
    raw = guard.connect(request(port, b"GET http://%s/open" % where))
    assert read_all(raw).endswith(b"fine")
    assert len(server.heads) == 1


def test_the_host_of_a_credential_is_never_a_tunnel(place: Place) -> None:
    """Neither excluded from inspection, nor on another port, nor in another protocol."""
    reached: list[bytes] = []
    port = place.town.serve(lambda channel: reached.append(channel.recv(100)))
    where = b"%s:%d" % (HOST.encode(), port)
    connect = b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where)
    excluded = place.guard(port, never=[HOST])
    said = read_all(excluded.connect(connect))
    assert said.startswith(b"HTTP/1.1 403 ") and b"never_inspect excludes it" in said
    assert "never_inspect" in excluded.flow().reason
    elsewhere = place.guard(port + 1, HostRule("allow", HOST, (port,), private=True))
    raw = elsewhere.connect(connect)
    assert read_until(raw, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    raw.sendall(b"SSH-2.0-stranger\r\n")
    assert read_all(raw) == b""
    assert elsewhere.flow().verdict == "deny"
    assert b"".join(reached) == b""
    mild = place.guard(port + 1, HostRule("allow", HOST, (port,), private=True), foreign="allow")
    raw = mild.connect(connect + b"SSH-2.0-mine\r\n")
    read_all(raw)
    assert b"SSH-2.0-mine" in b"".join(reached)


# --- rules that bind a host ---


def test_a_rule_lets_no_credential_through_where_there_is_none_of_the_users(place: Place) -> None:
    server = Server()
    port = place.serve(server.talk)
    common = HostRule("allow", HOST, (port,), private=True, inspect=True)
    for rule, status in ((common._replace(foreign="refuse"), b"403"), (common._replace(foreign="strip"), b"200")):
        guard = place.town.guard(rule, inspection=place.inspection())
        assert ask(place, guard, port, b"GET /").endswith(b"fine")
        said = ask(place, guard, port, b"PUT /package", b"Authorization: Bearer " + STRANGER)
        assert said.startswith(b"HTTP/1.1 %s " % status)
    assert not any(STRANGER in head for head in server.heads)


def test_a_rule_lets_no_credential_through_by_plain_http(place: Place) -> None:
    """The same rule opens port 80 of its host."""
    server = Server()
    port = place.town.serve(server.talk)
    where = b"%s:%d" % (HOST.encode(), port)
    common = HostRule("allow", HOST, (port,), private=True, inspect=True)
    for rule, status in ((common._replace(foreign="refuse"), b"403"), (common._replace(foreign="strip"), b"200")):
        guard = place.town.guard(rule, inspection=place.inspection())
        assert read_all(guard.connect(request(port, b"GET http://%s/open" % where))).endswith(b"fine")
        raw = guard.connect(request(port, b"PUT http://%s/package" % where, b"Authorization: Bearer " + STRANGER))
        assert read_all(raw).startswith(b"HTTP/1.1 %s " % status)
    assert not any(STRANGER in head for head in server.heads)


def test_a_host_is_bound_to_requests_and_to_an_account_whatever_else_allows_it(place: Place) -> None:
    server = Server()
    port = place.serve(server.talk)
    common = HostRule("allow", HOST, (port,), private=True, source="preset forge")
    reads = common._replace(inspect=True, only=True, methods=("GET",), source="policy.yaml:3")
    mine = reads._replace(methods=("POST",), paths=("/repos/me",), set_headers=(("x-account", "me"),))
    guard = place.town.guard(common, reads, mine, inspection=place.inspection())
    assert ask(place, guard, port, b"GET /repos/other").endswith(b"fine")
    assert ask(place, guard, port, b"POST /repos/me/files", b"X-Account: stranger").endswith(b"fine")
    assert b"x-account: me" in server.heads[-1] and b"stranger" not in server.heads[-1]
    said = ask(place, guard, port, b"POST /repos/other/files")
    assert said.startswith(b"HTTP/1.1 403 ") and b"allows only some requests there" in said
    assert len(server.heads) == 2


# --- HTTP/2 ---


class Server2:
    def __init__(self) -> None:
        self.requests: list[list[tuple[bytes, bytes]]] = []

    def talk(self, channel: ssl.SSLSocket) -> None:
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        h2.initiate_connection()
        channel.sendall(h2.data_to_send())
        while data := channel.recv(65536):
            for event in h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.requests.append([(bytes(name), bytes(value)) for name, value in event.headers])
                elif isinstance(event, StreamEnded):
                    h2.send_headers(event.stream_id, [(b":status", b"200")], end_stream=True)
            channel.sendall(h2.data_to_send())


CASES2 = [
    (b"/", (b"authorization", b"Bearer " + STRANGER), False),
    (b"/", (b"x-api-key", STRANGER), False),
    (b"/?api_key=stranger", (b"accept", b"*/*"), False),
    (b"/", (b"cookie", b"sid=stranger"), False),
    (b"/", (b"x-goog-api-key", b"stranger"), True),
]
"""Path, a header, and whether it is a trailer."""


@pytest.mark.parametrize("foreign", ["refuse", "strip"])
def test_http2_is_held_to_the_same(place: Place, foreign: Foreign) -> None:
    server = Server2()
    port = place.serve(server.talk, "h2")
    guard = place.guard(port, foreign=foreign)
    channel = place.tunnel(guard, port, "h2")
    h2 = H2Connection(H2Configuration(header_encoding=None))
    h2.initiate_connection()
    for path, field, is_trailer in CASES2:
        number = h2.get_next_available_stream_id()
        head = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"%s:%d" % (HOST.encode(), port))]
        head += [(b":path", path), (b"authorization", b"Bearer " + place.credential.placeholder.encode())]
        h2.send_headers(number, head if is_trailer else [*head, field], end_stream=not is_trailer)
        if is_trailer:
            h2.send_headers(number, [field], end_stream=True)
    channel.sendall(h2.data_to_send())
    answers: dict[int, bytes] = {}
    ended = 0
    while ended < len(CASES2):
        data = channel.recv(65536)
        assert data
        for event in h2.receive_data(data):
            if isinstance(event, ResponseReceived):
                answers[event.stream_id] = dict(event.headers)[b":status"]
            elif isinstance(event, StreamEnded | StreamReset):
                ended += 1
        channel.sendall(h2.data_to_send())
    assert [answers[number] for number in (1, 3, 5, 7)] == [b"403" if foreign == "refuse" else b"200"] * 4
    assert answers[9] == b"403", "a trailer cannot be left out: what it belongs to may be on its way"
    assert not any(word in repr(server.requests) for word in ("stranger", "7" * 30))
    guard.wait(flows=len(CASES2))
    assert all(flow.verdict == "deny" for flow in guard.flows if foreign == "refuse")
    if foreign == "strip":
        assert all((b"authorization", b"Bearer " + REAL.encode()) in head for head in server.requests)
