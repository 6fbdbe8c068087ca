"""A server that says a credential back, everywhere and in every spelling, through a real gate process: the command, the
flow and the journal never get it."""

from __future__ import annotations

import base64
import html
import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from tiers import SEED
from town import OpenGuard, Town, read_all, read_until

pytest.importorskip("cryptography", reason="inspection needs the library cryptography")
pytest.importorskip("h2", reason="inspection needs the library h2")
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    InformationalResponseReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from mirror import HOST, REAL, Place, Script, build, read_head

from mudroom.core.network.flow import flow_to_json
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection

Headers = list[tuple[bytes, bytes]]


def entities(text: str) -> str:
    return "".join(f"&#{ord(one)};" for one in text)


def mixed(text: str) -> str:
    """Every third character percent-encoded, in both cases of the digits."""
    return "".join(f"%{ord(one):02x}" if at % 3 else one for at, one in enumerate(text)).replace("%2b", "%2B")


SPELLINGS: dict[str, Callable[[str], str]] = {
    "verbatim": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "percent-encoded where needed": lambda text: quote(text, safe=""),
    "percent-encoded as a form": quote_plus,
    "percent-encoded throughout": lambda text: "".join(f"%{ord(one):02X}" for one in text),
    "percent-encoded twice": lambda text: quote(quote(text, safe=""), safe=""),
    "percent-encoded in part": mixed,
    "base64 at 0": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 at 1": lambda text: base64.b64encode(b"u" + text.encode() + b"!").decode(),
    "base64 at 2": lambda text: base64.b64encode(b"u:" + text.encode() + b"\n").decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(b"ada:" + text.encode()).decode(),
    "base64, percent-encoded": lambda text: quote(base64.b64encode(text.encode()).decode(), safe=""),
    "base64 of a Basic pair": lambda text: base64.b64encode(
        b"Basic " + base64.b64encode(b"u:" + text.encode())
    ).decode(),
    "hex": lambda text: text.encode().hex(),
    "hex, upper case": lambda text: text.encode().hex().upper(),
    "JSON escapes": lambda text: "".join(f"\\u{ord(one):04x}" for one in text),
    "JSON with escaped slashes": lambda text: text.replace("/", "\\/"),
    "HTML, decimal": entities,
    "HTML, hexadecimal": lambda text: "".join(f"&#x{ord(one):X};" for one in text),
    "HTML, of a page": lambda text: html.escape(text).replace("+", "&plus;").replace("/", "&sol;"),
    "HTML in JSON": lambda text: entities(text).replace("&", "\\u0026"),
}


def cut(text: bytes, name: str) -> list[bytes]:
    """Return the text in pieces of 1 to 12 bytes, drawn by the seed of the day."""
    source, pieces, at = random.Random(f"{SEED} {name}"), [], 0
    while at < len(text):
        length = source.randint(1, 12)
        pieces.append(text[at : at + length])
        at += length
    return pieces


def is_told(data: bytes | str, *, fragment: int = 14) -> str:
    """Return the spelling in which the value, or ``fragment`` characters of it in a row, are in the data."""
    text = data.decode("latin-1") if isinstance(data, bytes) else data
    for name, spell in SPELLINGS.items():
        if spell(REAL).lower() in text.lower():
            return name
    for at in range(len(REAL) - fragment + 1):
        if REAL[at : at + fragment].lower() in text.lower():
            return f"characters {at} to {at + fragment}"
    return ""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("echo")
    with Town(directory) as town:
        yield build(town, directory)


@pytest.fixture
def place(shared: Place) -> Place:
    return shared


def ask(place: Place, guard: OpenGuard, port: int, *more: bytes, method: bytes = b"GET") -> bytes:
    """Return all that the command gets for one request with the credential."""
    inside = place.tunnel(guard, port)
    lines = [b"%s / HTTP/1.1" % method, b"Host: %s:%d" % (HOST.encode(), port), b"Connection: close"]
    lines += [b"Authorization: Bearer " + place.credential.placeholder.encode(), *more, b"", b""]
    inside.sendall(b"\r\n".join(lines))
    said = read_all(inside)
    inside.close()
    return said


def check_flows(guard: OpenGuard, number: int) -> None:
    guard.wait(flows=number)
    for flow in guard.flows:
        assert not is_told(repr(flow)), flow
        assert not is_told(repr(flow_to_json(flow, redact=False)))


# --- HTTP/1.1 ---


def test_it_is_nowhere_in_a_response_in_no_spelling(place: Place) -> None:
    """All spellings in one connection each: in the reason, header names and values, 103, the body, chunks, trailers."""
    for name, spell in SPELLINGS.items():
        said = spell(REAL).encode()
        token = said if not set(said) & set(b"/=;&\\+%#{}") else b"x"
        chunks = cut(said, name)
        answer = (
            b"HTTP/1.1 103 Early %s\r\nLink: <%s>\r\n\r\n" % (said, said)
            + b"HTTP/1.1 200 All %s well\r\nX-You-Are: %s\r\nX-%s: y\r\nTransfer-Encoding: chunked\r\n\r\n"
            % (said, said, token)
            + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (b"begin ", *chunks, b" end" + said)),
            b"0\r\nX-Last: %s\r\n\r\n" % said,
        )
        script = Script(answer)
        port = place.serve(script.talk)
        guard = place.guard(port)
        got = ask(place, guard, port)
        assert REAL.encode() in script.heads[0]
        assert b"HTTP/1.1 200 All" in got and b"begin" in got and b" end" in got, name
        assert not is_told(got), (name, got)
        assert not is_told(got.replace(b"\r\n", b""), fragment=16), (name, got)
        check_flows(guard, 1)


def test_a_flow_does_not_keep_the_beginning_of_it_at_the_end_of_a_long_header(place: Place) -> None:
    """A flow keeps 1,024 bytes of a header; they were searched after the cut."""
    answer = b"HTTP/1.1 200 OK\r\nServer: %s%s\r\nContent-Length: 0\r\n\r\n" % (b"x" * 1000, REAL.encode())
    script = Script((answer,))
    port = place.serve(script.talk)
    guard = place.guard(port)
    assert not is_told(ask(place, guard, port))
    guard.wait(flows=1)
    (flow,) = guard.flows
    assert len(dict(flow.response)["server"]) == 1024
    assert REAL[:8] not in repr(flow)


def test_a_trace_does_not_show_it(place: Place) -> None:
    def trace(channel: ssl.SSLSocket) -> None:
        head = read_head(channel)
        channel.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: message/http\r\nContent-Length: %d\r\n\r\n" % len(head) + head
        )

    port = place.serve(trace)
    guard = place.guard(port)
    assert not is_told(ask(place, guard, port, method=b"TRACE"))
    check_flows(guard, 1)


def test_a_body_keeps_its_length(place: Place) -> None:
    body = b'{"you": "%s", "again": "%s"}' % (REAL.encode(), base64.b64encode(REAL.encode()))
    script = Script((b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body,))
    port = place.serve(script.talk)
    guard = place.guard(port)
    got = ask(place, guard, port).partition(b"\r\n\r\n")[2]
    assert len(got) == len(body)
    assert got.startswith(b'{"you": "') and got.endswith(b'"}') and b'", "again": "' in got
    assert not is_told(got)


@pytest.mark.parametrize("at", [1, 4, 9, 20, len(REAL) - 1])
def test_a_value_in_two_pieces_is_found_without_waiting_for_the_second(place: Place, at: int) -> None:
    """The first piece is passed on while the server waits."""
    inside: list[ssl.SSLSocket] = []

    def talk(channel: ssl.SSLSocket) -> None:
        read_head(channel)
        length = len(REAL) + 10
        channel.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n12345" % length + REAL[:at].encode())
        assert channel.recv(1) == b"+"
        channel.sendall(REAL[at:].encode() + b"67890")

    # the client's second byte is the beginning of its body, so the server knows that the first piece has arrived
    port = place.serve(talk)
    guard = place.guard(port)
    inside.append(place.tunnel(guard, port))
    head = b"POST / HTTP/1.1\r\nHost: %s:%d\r\nContent-Length: 1\r\nAuthorization: Bearer %s\r\n\r\n"
    inside[0].sendall(head % (HOST.encode(), port, place.credential.placeholder.encode()))
    got = read_until(inside[0], b"\r\n\r\n12345")
    while len(got.partition(b"\r\n\r\n")[2]) < 5 + at:
        got += inside[0].recv(65536)
    inside[0].sendall(b"+")
    got += read_until(inside[0], b"67890")
    assert not is_told(got, fragment=8), got


def test_what_a_library_says_of_a_bad_response_does_not_show_it(place: Place) -> None:
    for bad in (
        b"HTTP/1.1 2%s\r\n\r\n" % REAL.encode(),
        b"HTTP/1.1 200 OK\r\nx y: %s\r\n\r\n" % REAL.encode(),
        b"HTTP/1.1 200 OK\r\nX: \0%s\r\n\r\n" % REAL.encode(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\n" % REAL.encode(),
        b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n" % REAL.encode(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n" % REAL.encode(),
        b"%s\r\n\r\n" % base64.b64encode(b"ada:" + REAL.encode()),
    ):
        port = place.serve(Script((bad,)).talk)
        guard = place.guard(port)
        assert not is_told(ask(place, guard, port)), bad
        check_flows(guard, 1)
        assert guard.flows[0].error


def test_a_response_that_cannot_be_searched_is_refused(place: Place) -> None:
    """The server is asked for no compression; one that compresses anyway is refused."""
    script = Script((b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc",))
    port = place.serve(script.talk)
    guard = place.guard(port)
    got = ask(place, guard, port, b"Accept-Encoding: gzip, br", b"Grpc-Accept-Encoding: gzip")
    assert got.startswith(b"HTTP/1.1 502 ") and b"compressed" in got
    assert b"accept-encoding: identity" in script.heads[0].lower()
    assert b"gzip" not in script.heads[0]
    assert "compressed" in guard.flow().error
    port = place.serve(Script((b"HTTP/1.1 304 Same\r\nContent-Encoding: br\r\n\r\n",)).talk)
    assert ask(place, place.guard(port), port).startswith(b"HTTP/1.1 304 ")


def test_a_response_to_a_later_request_without_it_does_not_show_it(place: Place) -> None:
    script = Script(
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(REAL), REAL.encode()),),
    )
    port = place.serve(script.talk)
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    where = b"%s:%d" % (HOST.encode(), port)
    inside.sendall(
        b"GET / HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\n\r\n" % (where, place.credential.placeholder.encode())
    )
    read_until(inside, b"\r\n\r\n")
    inside.sendall(b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % where)
    assert not is_told(read_all(inside))
    check_flows(guard, 2)


def test_plain_http_does_not_show_it_either(place: Place) -> None:
    def talk(channel: socket.socket) -> None:
        channel.recv(65536)
        channel.sendall(
            b"HTTP/1.1 200 %s\r\nX-A: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (REAL.encode(), REAL.encode(), len(REAL), REAL.encode())
        )

    port = place.town.serve(talk)
    rule = HostRule("allow", HOST, (port,), private=True)
    other = place.credential._replace(host="elsewhere.example", port=443)
    guard = place.town.guard(rule, inspection=Inspection(place.authority, (), (other,), place.seal.roots))
    raw = guard.connect(
        b"GET http://%s:%d/ HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n" % ((HOST.encode(), port) * 2)
    )
    assert not is_told(read_all(raw))
    check_flows(guard, 1)


# --- WebSocket ---


def frame(code: int, payload: bytes, *, last: bool = True, reserved: int = 0) -> bytes:
    """Return a frame of a server (RFC 6455 5.2)."""
    first = code | (0x80 if last else 0) | reserved
    if len(payload) < 126:
        return bytes((first, len(payload))) + payload
    return bytes((first, 126)) + struct.pack("!H", len(payload)) + payload


def websocket(place: Place, *frames: bytes, head: bytes = b"") -> tuple[bytes, OpenGuard]:
    answer = b"HTTP/1.1 101 Hello %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-A: %s\r\n%s\r\n"
    script = Script((answer % (REAL.encode(), REAL.encode(), head), *frames))
    port = place.serve(script.talk)
    guard = place.guard(port)
    got = ask(place, guard, port, b"Upgrade: websocket", b"Sec-WebSocket-Extensions: permessage-deflate")
    assert b"permessage" not in script.heads[0]
    return got, guard


def test_it_is_in_no_message_of_a_websocket(place: Place) -> None:
    for name, spell in SPELLINGS.items():
        said = spell(REAL).encode()
        frames = [
            frame(1, b"whole " + said),
            frame(1, b"in parts ", last=False),
            *(frame(0, piece, last=False) for piece in cut(said, name)),
            frame(9, said[:100]),
            frame(0, b" done"),
            frame(2, b"\0\1" + said),
            frame(8, b"\x03\xe8" + said[:100]),
        ]
        got, guard = websocket(place, *frames)
        assert not is_told(got), (name, got)
        head, _end, rest = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), got
        assert len(rest) == sum(map(len, frames)), name
        assert b"whole " in rest and b" done" in rest
        heads = (rest[:2], rest[len(frames[0]) :][:2])
        assert heads == (frames[0][:2], frames[1][:2])
        check_flows(guard, 1)


def test_messages_of_a_websocket_that_cannot_be_searched_end_it(place: Place) -> None:
    got, guard = websocket(place, frame(1, b"squeezed", reserved=0x40))
    assert b"squeezed" not in got
    assert "websocket" in guard.flow().error
    got, guard = websocket(place, frame(1, b"x"), head=b"Sec-WebSocket-Extensions: permessage-deflate\r\n")
    assert got.startswith(b"HTTP/1.1 502 ")


# --- HTTP/2 ---


class Echo2:
    """A server of HTTP/2 that says one text in its headers, early hints, data and trailers."""

    def __init__(self, *texts: bytes, encoding: Headers | None = None) -> None:
        self.texts, self.encoding = texts, encoding or []
        self.requests: list[dict[bytes, bytes]] = []

    def talk(self, channel: ssl.SSLSocket) -> None:
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None, validate_outbound_headers=False))
        h2.initiate_connection()
        channel.sendall(h2.data_to_send())
        while data := channel.recv(65536):
            for event in h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.requests.append({bytes(name): bytes(value) for name, value in event.headers})
                elif isinstance(event, StreamEnded):
                    text = self.texts[int(self.requests[-1][b":path"][1:])]
                    number = event.stream_id
                    name = text.lower() if not set(text) & set(b"/=;&\\+%#{}") else b"n"
                    h2.send_headers(number, [(b":status", b"103"), (b"link", text)])
                    h2.send_headers(
                        number, [(b":status", b"200"), (b"x-you", text), (b"x-" + name, b"y"), *self.encoding]
                    )
                    for piece in cut(text, "HTTP/2"):
                        h2.send_data(number, piece)
                    trailers = [(b"grpc-status", b"16"), (b"grpc-message", b"bad " + text), (b"t-" + name, text)]
                    h2.send_headers(number, trailers, end_stream=True)
            channel.sendall(h2.data_to_send())


def ask2(
    place: Place, guard: OpenGuard, port: int, number: int, *more: tuple[bytes, bytes]
) -> Iterator[tuple[Any, bytes]]:
    """Send so many requests in one connection; yield all that comes as bytes, by event."""
    channel = place.tunnel(guard, port, "h2")
    h2 = H2Connection(H2Configuration(header_encoding=None, validate_inbound_headers=False))
    h2.initiate_connection()
    for path in range(number):
        head = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"%s:%d" % (HOST.encode(), port))]
        head += [
            (b":path", b"/%d" % path),
            (b"authorization", b"Bearer " + place.credential.placeholder.encode()),
            *more,
        ]
        h2.send_headers(h2.get_next_available_stream_id(), head, end_stream=True)
    channel.sendall(h2.data_to_send())
    ended = 0
    while ended < number:
        data = channel.recv(65536)
        assert data
        for event in h2.receive_data(data):
            if isinstance(event, InformationalResponseReceived | ResponseReceived | TrailersReceived):
                yield event, b"".join(b"%s: %s\n" % (bytes(name), bytes(value)) for name, value in event.headers)
            elif isinstance(event, DataReceived):
                yield event, bytes(event.data)
            elif isinstance(event, StreamEnded | StreamReset):
                ended += 1
        channel.sendall(h2.data_to_send())


def test_it_is_nowhere_in_http2_and_grpc(place: Place) -> None:
    texts = [spell(REAL).encode() for spell in SPELLINGS.values()]
    server = Echo2(*texts)
    port = place.serve(server.talk, "h2")
    guard = place.guard(port)
    bodies: dict[int, bytes] = {}
    kinds: dict[str, int] = {}
    for event, data in ask2(place, guard, port, len(texts)):
        kinds[type(event).__name__] = kinds.get(type(event).__name__, 0) + 1
        if isinstance(event, DataReceived):
            bodies[event.stream_id] = bodies.get(event.stream_id, b"") + data
        assert not is_told(data), data
    names = ("InformationalResponseReceived", "ResponseReceived", "TrailersReceived")
    assert [kinds[name] for name in names] == [len(texts)] * 3
    for (name, spell), body in zip(SPELLINGS.items(), bodies.values(), strict=True):
        assert len(body) == len(spell(REAL)), name
        assert not is_told(body, fragment=16), (name, body)
    assert all(REAL.encode() in request[b"authorization"] for request in server.requests)
    check_flows(guard, len(texts))


def test_compressed_responses_of_http2_are_refused(place: Place) -> None:
    for encoding in ((b"content-encoding", b"gzip"), (b"grpc-encoding", b"gzip")):
        server = Echo2(b"text", encoding=[encoding])
        port = place.serve(server.talk, "h2")
        guard = place.guard(port)
        asked = ((b"accept-encoding", b"gzip"), (b"grpc-accept-encoding", b"gzip"))
        said = [data for _event, data in ask2(place, guard, port, 1, *asked)]
        assert server.requests[0][b"accept-encoding"] == b"identity"
        assert server.requests[0].get(b"grpc-accept-encoding", b"identity") == b"identity"
        assert any(b":status: 502" in data for data in said), said
        assert "compressed" in guard.flow().error
