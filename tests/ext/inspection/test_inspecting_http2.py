"""HTTP/2 that wants to be understood in two ways, or to cost more than it should, through a real gate process."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from town import WAIT, OpenGuard, Town, read_until

pytest.importorskip("cryptography", reason="inspection needs the library cryptography")
pytest.importorskip("h2", reason="inspection needs the library h2")
import hpack
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.settings import SettingCodes, Settings
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from seal import Seal, client

from mudroom.core.network.host_rules import HostRule, held
from mudroom.core.network.inspection import Inspection
from mudroom.ext.inspection.authority import load_authority
from mudroom.ext.inspection.frame import PREFACE, goaway
from mudroom.ext.inspection.placeholder import parse_credential, with_value

HOST = "api.example"
Headers = list[tuple[bytes, bytes]]


class Origin:
    """A server of HTTP/2 that writes down every request, and answers it when its body is there."""

    def __init__(self) -> None:
        self.requests: list[dict[bytes, bytes]] = []
        self.bodies: dict[int, bytes] = {}
        self.seen = threading.Condition()
        self.size = 0
        """Of the responses; 0: a word."""
        self.streams = 0
        """That it takes at one time; 0: as many as the library."""
        self.sent = 0
        self.stuck = threading.Event()
        """It could send nothing for two seconds."""

    def talk(self, channel: ssl.SSLSocket) -> None:
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        if self.streams:
            limit = {SettingCodes.MAX_CONCURRENT_STREAMS: self.streams}
            h2.local_settings = Settings(client=False, initial_values=limit)
        h2.initiate_connection()
        channel.sendall(h2.data_to_send())
        left: dict[int, int] = {}
        channel.settimeout(2)
        while data := self.receive(channel, left):
            for event in h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    with self.seen:
                        self.requests.append({bytes(name): bytes(value) for name, value in event.headers})
                        self.seen.notify_all()
                elif isinstance(event, DataReceived):
                    with self.seen:
                        self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                        self.seen.notify_all()
                    h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded):
                    h2.send_headers(event.stream_id, [(b":status", b"200")])
                    path = self.requests[-1][b":path"]
                    if path == b"/early":
                        self.flood(channel, event.stream_id)
                        return
                    if path == b"/away":  # says that it goes, and ends what it has begun
                        channel.sendall(h2.data_to_send() + goaway(event.stream_id, 0))
                    if path == b"/cut":  # some servers end whole responses so
                        for _ in range(3):  # what fits into its first window
                            h2.send_data(event.stream_id, b"x" * 16384)
                        h2.reset_stream(event.stream_id, 0)
                    elif path == b"/reset":
                        h2.reset_stream(event.stream_id, 11)
                    elif path == b"/gone":
                        return
                    elif self.size:
                        left[event.stream_id] = self.size
                    else:
                        h2.send_data(event.stream_id, b"fine", end_stream=True)
            self.fill(h2, left)
            try:
                channel.sendall(h2.data_to_send())
            except TimeoutError:
                self.stuck.set()
                return

    def flood(self, channel: ssl.SSLSocket, number: int) -> None:
        """Send 103 after 103, in few bytes each: their long header is in the table of the compression."""
        encoder, fields = hpack.Encoder(), [(b":status", b"103"), *[(b"link", b"x" * 3000)] * 8]
        blocks = [encoder.encode(fields, huffman=False) for _ in range(2)]
        first, again = (HeadersFrame(number, block, flags=["END_HEADERS"]).serialize() for block in blocks)
        channel.settimeout(1)
        with suppress(OSError):
            channel.sendall(first + again * 8000)
        self.stuck.set()

    def receive(self, channel: ssl.SSLSocket, left: dict[int, int]) -> bytes:
        while True:
            try:
                return channel.recv(65536)
            except TimeoutError:
                if left:
                    self.stuck.set()

    def fill(self, h2: H2Connection, left: dict[int, int]) -> None:
        for number in list(left):
            while left[number] and (window := min(h2.local_flow_control_window(number), left[number], 16384)) > 0:
                left[number] -= window
                self.sent += window
                h2.send_data(number, b"x" * window, end_stream=not left[number])
            if not left[number]:
                del left[number]


class Raw:
    """A client that sends what frames it likes."""

    def __init__(self, channel: ssl.SSLSocket) -> None:
        self.channel = channel
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self._data = b""
        channel.sendall(PREFACE + SettingsFrame(0).serialize())

    def send(self, *frames: Frame) -> None:
        self.channel.sendall(b"".join(frame.serialize() for frame in frames))

    def headers(self, number: int, headers: Headers, *flags: str) -> HeadersFrame:
        block = self.encoder.encode([(name, value) for name, value in headers], huffman=False)
        return HeadersFrame(number, block, flags=list(flags) or ["END_HEADERS", "END_STREAM"])

    def decode(self, frame: HeadersFrame) -> dict[str, str]:
        fields = self.decoder.decode(frame.data, raw=True)
        return {bytes(name).decode(): bytes(value).decode() for name, value in fields}

    def frames(self) -> Iterator[Frame]:
        """What comes, to the end of the connection."""
        while True:
            while len(self._data) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(self._data[:9]))
                if len(self._data) < 9 + length:
                    break
                frame.parse_body(memoryview(self._data[9 : 9 + length]))
                self._data = self._data[9 + length :]
                yield frame
            try:
                part = self.channel.recv(65536)
            except ConnectionError:
                return
            if not part:
                return
            self._data += part

    def status(self, number: int) -> str:
        """Of the response to that stream; ``reset N`` or ``goaway N`` if that is what comes."""
        for frame in self.frames():
            if isinstance(frame, GoAwayFrame):
                return f"goaway {frame.error_code}"
            if frame.stream_id == number and isinstance(frame, HeadersFrame):
                return str(self.decode(frame)[":status"])
            if frame.stream_id == number and isinstance(frame, RstStreamFrame):
                return f"reset {frame.error_code}"
        return "the end"


class World:
    def __init__(self, directory: Path, town: Town) -> None:
        self.town, self.seal, self.origin = town, Seal(directory), Origin()
        self.authority = load_authority(os.fsencode(directory / "vault"), b"/home/ada/project")
        context = self.seal.server(HOST, alpn=("h2",))

        def begin(channel: socket.socket) -> None:
            with context.wrap_socket(channel, server_side=True) as inside:
                self.origin.talk(inside)

        town.names({HOST: [["127.0.0.1"]]})
        self.port = town.serve(begin)
        self.guard = self.opened()
        self.where = f"{HOST}:{self.port}".encode()

    def opened(self, inspection: Inspection | None = None, **changes: Any) -> OpenGuard:
        rule = HostRule("allow", HOST, (self.port,), private=True, inspect=True)._replace(**changes)
        return self.town.guard(rule, inspection=inspection or Inspection(self.authority, roots=self.seal.roots))

    def client(self, guard: OpenGuard | None = None) -> Raw:
        raw = (guard or self.guard).connect(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (self.where, self.where))
        assert read_until(raw, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        inside = client(self.authority, ("h2",)).wrap_socket(raw, server_hostname=HOST)
        self.town.closers.append(inside.close)
        assert inside.selected_alpn_protocol() == "h2"
        return Raw(inside)

    def headers(self, *more: tuple[bytes, bytes], **pseudo: bytes) -> Headers:
        usual = {"method": b"GET", "scheme": b"https", "authority": self.where, "path": b"/"} | pseudo
        return [(b":" + name.encode(), value) for name, value in usual.items()] + list(more)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Town(tmp_path) as town:
        yield World(tmp_path, town)


def test_a_plain_request_goes_through(world: World) -> None:
    raw = world.client()
    raw.send(raw.headers(1, world.headers((b"x-own", b"1"))))
    assert raw.status(1) == "200"
    (request,) = world.origin.requests
    assert (request[b":authority"], request[b":path"], request[b"x-own"]) == (world.where, b"/", b"1")
    flow = world.guard.flow()
    assert (flow.way, flow.version, flow.status, flow.error) == ("https", "HTTP/2", 200, "")


SMUGGLED = {
    "line end in a value": ((b"x-a", b"1\r\nx-b: 2"), {}),
    "line feed in a value": ((b"x-a", b"1\nx-b: 2"), {}),
    "NUL in a value": ((b"x-a", b"1\0"), {}),
    "line end in a name": ((b"x-a\r\nx-b", b"1"), {}),
    "colon in a name": ((b"x-a: 1", b"1"), {}),
    "upper case in a name": ((b"X-A", b"1"), {}),
    "space before a value": ((b"x-a", b" 1"), {}),
    "transfer-encoding": ((b"transfer-encoding", b"chunked"), {}),
    "connection": ((b"connection", b"x-a"), {}),
    "te": ((b"te", b"gzip"), {}),
    "another host": ((b"host", b"other.example"), {}),
    "two lengths": ((b"content-length", b"1, 2"), {}),
    "a pseudo-header after others": ((b"x-a", b"1"), {"_last": b":path"}),
    "another authority": (None, {"authority": b"other.example"}),
    "a user in the authority": (None, {"authority": b"api.example@other.example"}),
    "another scheme": (None, {"scheme": b"http"}),
    "line end in the path": (None, {"path": b"/ HTTP/1.1\r\nx-a: 1"}),
    "space in the path": (None, {"path": b"/a b"}),
    "fragment in the path": (None, {"path": b"/a#b"}),
    "a URL as the path": (None, {"path": b"https://other.example/"}),
    "an empty path": (None, {"path": b""}),
    "space in the method": (None, {"method": b"GET /x"}),
    "CONNECT": (None, {"method": b"CONNECT"}),
    "extended CONNECT": (None, {"method": b"CONNECT", "protocol": b"websocket"}),
}


def test_what_could_be_read_in_two_ways_never_reaches_the_server(world: World) -> None:
    for name, (field, pseudo) in SMUGGLED.items():
        headers = world.headers(
            *([field] if field else []), **{key: value for key, value in pseudo.items() if key != "_last"}
        )
        if "_last" in pseudo:
            headers.append((pseudo["_last"], b"/other"))
        guard = world.opened()
        raw = world.client(guard)
        raw.send(raw.headers(1, headers))
        assert raw.status(1) in ("400", "403", "goaway 1"), name
        flow = guard.flow()
        assert (flow.way, flow.verdict) == ("https", "deny"), name
        assert world.origin.requests == [], name


def test_a_stream_that_is_denied_does_not_disturb_the_others(world: World) -> None:
    guard = world.opened(paths=("/open",))
    raw = world.client(guard)
    raw.send(raw.headers(1, world.headers(path=b"/closed")), raw.headers(3, world.headers(path=b"/open/1")))
    raw.send(raw.headers(5, world.headers(path=b"/open/../closed"), "END_HEADERS"), DataFrame(5, b"body"))
    raw.send(raw.headers(7, world.headers(path=b"/open/2")))
    found = {}
    for frame in raw.frames():
        if isinstance(frame, HeadersFrame):
            found[frame.stream_id] = raw.decode(frame)[":status"]
        if len(found) == 4:
            break
    assert found == {1: "403", 3: "200", 5: "403", 7: "200"}
    assert [request[b":path"] for request in world.origin.requests] == [b"/open/1", b"/open/2"]


@pytest.mark.parametrize("name", [b"x-http-method-override", b"x-original-url"])
def test_a_header_that_names_another_method_or_path_opens_nothing(world: World, name: bytes) -> None:
    guard = world.opened(paths=("/open",))
    raw = world.client(guard)
    raw.send(raw.headers(1, world.headers((name, b"/closed"), path=b"/open/1")))
    assert raw.status(1) == ("403" if b"url" in name else "200"), "the rule is for some paths, and for all methods"
    guard = world.opened(methods=("GET",))
    raw = world.client(guard)
    raw.send(raw.headers(1, world.headers((name, b"DELETE"))))
    assert raw.status(1) == ("200" if b"url" in name else "403")


def test_an_open_connection_is_vetted_by_the_present_rules(world: World) -> None:
    guard = world.opened()
    raw = world.client(guard)
    raw.send(raw.headers(1, world.headers()))
    assert raw.status(1) == "200"
    guard.guard.update([HostRule("allow", HOST, (world.port,), inspect=True, private=False)])
    raw.send(raw.headers(3, world.headers()))
    assert raw.status(3) == "403"
    assert len(world.origin.requests) == 1


def test_an_open_connection_passes_nothing_to_a_host_that_is_held_since(world: World) -> None:
    guard = world.opened()
    raw = world.client(guard)
    raw.send(raw.headers(1, world.headers()))
    assert raw.status(1) == "200"
    guard.guard.update([held(HostRule("allow", HOST, (world.port,), private=True))])
    raw.send(raw.headers(3, world.headers()))
    assert raw.status(3) == "403"
    assert len(world.origin.requests) == 1


def test_continuations_without_end_are_the_end(world: World) -> None:
    raw = world.client()
    frames: list[Frame] = [HeadersFrame(1, b"", flags=["END_STREAM"])]
    frames += [ContinuationFrame(1, b"\x00" * 100) for _ in range(1000)]
    try:
        raw.send(*frames)
    except OSError:
        pass  # it was told so, and goes
    assert raw.status(1).startswith(("goaway", "the end"))
    assert "HTTP/2" in world.guard.flow().reason
    assert world.origin.requests == []


def test_headers_that_grow_when_they_are_read_are_the_end(world: World) -> None:
    raw = world.client()
    big = (b"x-bomb", b"x" * 4000)
    raw.encoder.encode([big])  # the table of the other end does not know it, so each one is in full, then by number
    raw.encoder = hpack.Encoder()
    raw.send(raw.headers(1, world.headers(*[big] * 100)))
    assert raw.status(1).startswith("goaway")
    assert world.guard.flow().verdict == "deny"
    assert world.origin.requests == []


def test_a_frame_that_is_too_long_is_refused_before_it_is_held(world: World) -> None:
    raw = world.client()
    raw.channel.sendall((1 << 23).to_bytes(3, "big") + bytes((0, 0)) + (1).to_bytes(4, "big"))
    assert raw.status(1) == "goaway 11"
    assert "a frame of 8388608 bytes" in world.guard.flow().reason


def test_streams_that_are_begun_and_reset_are_bounded(world: World) -> None:
    raw = world.client()
    with suppress(OSError):
        for number in range(1, 4001, 2):
            raw.send(raw.headers(number, world.headers()), RstStreamFrame(number, 8))
    assert raw.status(0) in ("goaway 11", "the end")
    while not any("begun and reset" in flow.reason for flow in world.guard.flows):
        world.guard.wait(flows=len(world.guard.flows) + 1)
    assert len(world.origin.requests) < 500


@pytest.mark.parametrize("kind", [8, 16, 99])
def test_updates_of_windows_and_unknown_frames_are_bounded(world: World, kind: int) -> None:
    raw = world.client()
    body = (1).to_bytes(4, "big")
    frame = len(body).to_bytes(3, "big") + bytes((kind, 0)) + bytes(4) + body
    with suppress(OSError):
        raw.channel.sendall(frame * 500_000)
    assert raw.status(0) in ("goaway 11", "the end")
    while not any("says nothing" in flow.reason for flow in world.guard.flows):
        world.guard.wait(flows=len(world.guard.flows) + 1)


def test_pings_that_nobody_takes_the_answers_of_do_not_fill_the_gate(world: World) -> None:
    """The gate reads no further, or it counts a flood and closes, after two seconds of reading (``Peer.dismiss``)."""
    raw = world.client()
    raw.channel.settimeout(3)
    frame = PingFrame(0, b"12345678").serialize() * 10_000
    limit = time.monotonic() + WAIT
    with pytest.raises(OSError, match=r"(?i)timed out|reset|closed|broken|eof"):
        while time.monotonic() < limit:
            raw.channel.sendall(frame)
    assert resident(world.town) < 150 << 20


def test_a_client_that_does_not_read_holds_up_its_server_and_fills_nothing(world: World) -> None:
    raw = world.client()
    raw.send(WindowUpdateFrame(0, (1 << 31) - (1 << 16)), SettingsFrame(0, {4: (1 << 31) - 1}))
    world.origin.size = 1 << 28
    for number in range(1, 21, 2):
        raw.send(raw.headers(number, world.headers()))
    assert world.origin.stuck.wait(30)
    assert world.origin.sent < 64 << 20
    assert resident(world.town) < 150 << 20


def test_heads_that_nobody_takes_do_not_fill_the_gate(world: World) -> None:
    """Of a kilobyte that the server sent it made a megabyte for a client that wants no compression."""
    raw = world.client()
    before = resident(world.town)
    raw.send(SettingsFrame(0, {1: 0}), raw.headers(1, world.headers(path=b"/early")))
    assert world.origin.stuck.wait(30)
    other = world.client()
    other.send(other.headers(1, world.headers()))
    assert other.status(1) == "200"
    assert resident(world.town) - before < 32 << 20


def test_connections_that_nobody_reads_share_what_a_command_may_hold(tmp_path: Path) -> None:
    """And another command's are served. Without a bound, each of them held 2.7 MiB."""
    constants = {"process.MOST_HELD": 8 << 20, "gate.guard.ROOM_TIME": 0.2}
    with Town(tmp_path, constants=constants) as town:
        world = World(tmp_path, town)
        first = world.client()
        first.send(first.headers(1, world.headers()))
        assert first.status(1) == "200"
        before = resident(town)
        world.origin.size = 4 << 20
        opened = 0
        with pytest.raises(OSError, match=r"(?i)alert|reset|closed|eof"):
            for _ in range(40):
                raw = world.client()
                raw.send(WindowUpdateFrame(0, (1 << 31) - (1 << 16)), SettingsFrame(0, {4: (1 << 31) - 1}))
                raw.send(*(raw.headers(number, world.headers()) for number in range(1, 21, 2)))
                opened += 1
        assert 4 <= opened <= (8 << 20) // 2 // (352 << 10)
        while not any("hold all that they may" in flow.reason for flow in world.guard.flows):
            world.guard.wait(flows=len(world.guard.flows) + 1)  # the connection may be told after another one's end
        assert resident(town) - before < 16 << 20
        world.origin.size = 0
        other = world.opened()
        raw = world.client(other)
        raw.send(raw.headers(1, world.headers()))
        assert raw.status(1) == "200"


def resident(town: Town) -> int:
    with open(f"/proc/{town.gate.pid}/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_what_is_long_comes_through_whole(world: World) -> None:
    raw = world.client()
    world.origin.size = 20 << 20
    raw.send(raw.headers(1, world.headers()))
    got = 0
    for frame in raw.frames():
        if isinstance(frame, DataFrame):
            got += len(frame.data)
            raw.send(WindowUpdateFrame(0, len(frame.data) or 1), WindowUpdateFrame(1, len(frame.data) or 1))
            if "END_STREAM" in frame.flags:
                break
    assert got == 20 << 20
    assert world.guard.flow().received == got


def test_more_streams_than_agreed_are_the_end(world: World) -> None:
    raw = world.client()
    raw.send(*(raw.headers(number, world.headers(method=b"POST"), "END_HEADERS") for number in range(1, 401, 2)))
    assert raw.status(999) == "goaway 1"


def test_a_placeholder_in_a_body_is_refused_in_pieces_too(world: World) -> None:
    wanted = parse_credential("TOKEN", f"{HOST}:{world.port}")
    credential = with_value(wanted, "real-" + "r" * 40, bytes(range(32)))
    guard = world.opened(Inspection(world.authority, (), (credential,), world.seal.roots))
    raw = world.client(guard)
    field = (b"authorization", b"Bearer " + credential.placeholder.encode())
    raw.send(raw.headers(1, world.headers(field)))
    assert raw.status(1) == "200"
    assert world.origin.requests[0][b"authorization"] == b"Bearer real-" + b"r" * 40
    half = len(credential.placeholder) // 2
    raw.send(raw.headers(3, world.headers(method=b"POST"), "END_HEADERS"))
    raw.send(DataFrame(3, credential.placeholder[:half].encode()))
    with world.origin.seen:
        assert world.origin.seen.wait_for(lambda: len(world.origin.bodies.get(3, b"")) == half, 20)
    raw.send(DataFrame(3, credential.placeholder[half:].encode(), flags=["END_STREAM"]))
    assert raw.status(3) == "403"
    raw.send(raw.headers(5, world.headers(method=b"POST"), "END_HEADERS"), DataFrame(5, b"body"))
    with world.origin.seen:
        assert world.origin.seen.wait_for(lambda: world.origin.bodies.get(5) == b"body", 20)
    raw.send(raw.headers(5, [(b"x-check", credential.placeholder.encode())]))
    assert raw.status(5) == "403"
    guard.wait(flows=3)
    assert [flow.verdict for flow in guard.flows] == ["allow", "deny", "deny"]
    assert "is in the body" in guard.flows[1].reason
    assert guard.flows[1].sent == half, "it had been sent when the request was refused"
    assert guard.flows[2].sent == 4
    assert "is in a trailer" in guard.flows[2].reason
    assert "real-" not in repr(guard.flows)
    assert not any(credential.placeholder.encode() in body for body in world.origin.bodies.values())


# --- servers that go, refuse and limit ---


def test_a_server_that_goes_away_ends_what_it_has_begun(world: World) -> None:
    raw = world.client()
    raw.send(raw.headers(1, world.headers(path=b"/away")))
    seen, body = [], b""
    for frame in raw.frames():
        if isinstance(frame, GoAwayFrame):
            seen.append(f"goaway {frame.error_code} {frame.last_stream_id}")
        elif isinstance(frame, DataFrame):
            body += frame.data
    assert (body, seen) == (b"fine", ["goaway 0 1"])
    assert (world.guard.flow().status, world.guard.flow().error) == (200, "")


def test_a_reset_of_the_server_is_one_for_the_client_and_the_others_go_on(world: World) -> None:
    raw = world.client()
    raw.send(raw.headers(1, world.headers(path=b"/reset")))
    assert raw.status(1) == "200"
    assert raw.status(1) == "reset 11"
    raw.send(raw.headers(3, world.headers()))
    assert raw.status(3) == "200"
    world.guard.wait(flows=2)
    assert "broke it off (HTTP/2 error 11)" in world.guard.flows[0].error


def test_what_a_server_said_before_it_reset_is_passed_on_before_the_reset(world: World) -> None:
    raw = world.client()
    raw.send(raw.headers(1, world.headers(path=b"/cut")))
    got = 0
    for frame in raw.frames():
        if isinstance(frame, DataFrame):
            got += len(frame.data)
            raw.send(WindowUpdateFrame(0, len(frame.data)), WindowUpdateFrame(1, len(frame.data)))
        elif isinstance(frame, RstStreamFrame):
            assert frame.error_code == 0
            break
    assert got == 3 * 16384
    assert (world.guard.flow().received, world.guard.flow().error) == (got, "")


def test_a_server_that_ends_without_an_answer_is_a_502(world: World) -> None:
    raw = world.client()
    raw.send(raw.headers(1, world.headers(path=b"/gone")))
    assert raw.status(1) == "502"
    assert world.guard.flow().error


def test_requests_wait_for_a_server_that_takes_few_at_a_time(world: World) -> None:
    world.origin.streams = 1
    raw = world.client()
    raw.send(raw.headers(1, world.headers()))
    assert raw.status(1) == "200", "the server's limit is known from now on"
    raw.send(*(raw.headers(number, world.headers()) for number in range(3, 63, 2)))
    found = 0
    for frame in raw.frames():
        if isinstance(frame, HeadersFrame):
            assert raw.decode(frame)[":status"] == "200"
            found += 1
        if found == 30:
            break
    world.guard.wait(flows=31)
    assert {flow.status for flow in world.guard.flows} == {200}


def test_a_client_that_goes_leaves_nothing_behind(world: World) -> None:
    raw = world.client()
    raw.send(*(raw.headers(number, world.headers(method=b"POST"), "END_HEADERS") for number in range(1, 21, 2)))
    with world.origin.seen:
        assert world.origin.seen.wait_for(lambda: len(world.origin.requests) == 10, 20)
    raw.channel.close()
    world.guard.wait(flows=10)
    assert len({flow.error for flow in world.guard.flows}) == 1
    assert all(flow.error for flow in world.guard.flows)


def test_what_goes_on_is_told_when_the_guard_is_shut(world: World) -> None:
    raw = world.client()
    raw.send(raw.headers(1, world.headers(method=b"POST", path=b"/long"), "END_HEADERS"))
    with world.origin.seen:
        assert world.origin.seen.wait_for(lambda: world.origin.requests, 20)
    flows = world.guard.guard.shut(10)
    assert [(flow.path, flow.error) for flow in flows if flow.path] == [("/long", "it was cut")]


def test_many_requests_one_after_the_other_in_one_connection(world: World) -> None:
    raw = world.client()
    for number in range(1, 1001, 2):
        raw.send(raw.headers(number, world.headers(path=b"/%d" % number)))
        assert raw.status(number) == "200"
    world.guard.wait(flows=500)
    assert world.guard.flows[-1].path == "/999"
