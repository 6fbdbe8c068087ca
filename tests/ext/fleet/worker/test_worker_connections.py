"""A command's connections that leave from the origin."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_origin import ScriptedOrigin, message_of
from worker_fixtures import origin, process, project, start, started, worker_home

from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.ext.fleet.wire import message
from mudroom.ext.fleet.wire.frame import Frame, LinkError, encode
from mudroom.ext.fleet.wire.tunnel import CLOSED, MOST, PIECE, WINDOW, Tunnels

__all__ = ["origin", "process", "project", "start", "started", "worker_home"]  # fixtures

Worker = Callable[..., ScriptedOrigin]
FAR = Settings(hosts=(HostRule("allow", "far.example", source="test"),))
ASK_FOR_IT = "import urllib.request as r; print(r.build_opener(r.ProxyHandler()).open('http://far.example/').read())"
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"


def asked(
    worker: ScriptedOrigin, project: Path, script: str = ASK_FOR_IT, lease: float = 60.0
) -> tuple[int, message.Dial]:
    """Return an errand's stream, and the connection that it asks for."""
    worker.hello(lease)
    base = worker.send_base(project)
    stream = worker.start(base, "/usr/bin/python3", "-c", script, settings=FAR, through_origin=True)
    dial: message.Dial = worker.expect(message.DIAL, stream)
    return stream, dial


def test_an_allowed_connection_is_made_by_the_origin(start: Worker, project: Path) -> None:
    worker = start()
    stream, dial = asked(worker, project)
    assert (dial.host, dial.port) == ("far.example", 80) and dial.caller.startswith("errand-")
    worker.send(message.DIALLED, message.Dialled(dial.number, ""), stream)
    request = worker.next()
    while request.kind != message.DATA:
        request = worker.next()
    assert request.stream == dial.number and request.body.startswith(b"GET / HTTP/1.1\r\n")
    worker.send(message.DATA, REPLY, dial.number)
    worker.send(message.SHUT, b"", dial.number)
    outcome = worker.outcome(stream)
    assert outcome.exit_code == 0 and worker.printed(stream) == b"b'hi'\n"


@pytest.mark.parametrize("number", [-1, 1 << 32, 1 << 63])
def test_a_connection_whose_number_fits_into_no_frame_ends_the_link(start: Worker, number: int) -> None:
    worker = start()
    worker.hello()
    worker.send(message.DIALLED, message.Dialled(number, ""), 1)
    assert "sent a Dialled that cannot be read" in worker.expect(message.BYE).reason


@pytest.mark.parametrize(("is_refused", "status"), [(True, b"403"), (False, b"502")])
def test_a_connection_that_the_origin_does_not_make(
    start: Worker, project: Path, is_refused: bool, status: bytes
) -> None:
    worker = start()
    stream, dial = asked(worker, project)
    worker.send(message.DIALLED, message.Dialled(dial.number, "not today", is_refused), stream)
    outcome = worker.outcome(stream)
    assert outcome.exit_code == 1 and status in worker.printed(stream, 2)


def test_a_host_without_a_rule_is_asked_about_and_not_dialled(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    script = ASK_FOR_IT.replace("far.example", "other.example")
    stream = worker.start(
        worker.send_base(project), "/usr/bin/python3", "-c", script, settings=FAR, through_origin=True
    )
    ask = worker.expect(message.ASK, stream)
    worker.send(message.ANSWER, message.Answer(ask.number, b""), stream)
    assert worker.outcome(stream).exit_code == 1
    assert message.DIAL not in [frame.kind for frame in worker.received]


def test_a_link_that_ends_ends_its_connections(start: Worker, project: Path) -> None:
    worker = start()
    stream, dial = asked(worker, project)
    worker.send(message.DIALLED, message.Dialled(dial.number, ""), stream)
    while worker.next().kind != message.DATA:
        pass
    worker.disconnect()
    assert worker.wait() == 0  # long before the lease: the command has lost its server


def test_more_than_the_window_ends_the_link(start: Worker, project: Path) -> None:
    worker = start()
    script = ASK_FOR_IT.replace(".read()", ", __import__('time').sleep(1000)")
    stream, dial = asked(worker, project, script, lease=10.0)  # the worker says BYE when it has ended
    worker.send(message.DIALLED, message.Dialled(dial.number, ""), stream)
    while worker.next().kind != message.DATA:
        pass
    worker.send(message.DATA, REPLY.replace(b": 2", b": 900000000"), dial.number)
    with pytest.raises(BrokenPipeError):
        for _piece in range(10_000):  # and nobody says that there is room
            worker.send(message.DATA, bytes(PIECE), dial.number)
    assert "more bytes of a connection" in worker.expect(message.BYE).reason


# --- tunnels by themselves ---


class Pair:
    """Two ends of a link, without one."""

    def __init__(self) -> None:
        self.broken: list[LinkError] = []
        self._ends: list[socket.socket] = []
        self.near = Tunnels(lambda frame: self._take(self.far, frame))
        self.far = Tunnels(lambda frame: self._take(self.near, frame))

    def _take(self, end: Tunnels, frame: Frame) -> None:
        try:
            end.take(frame)
        except LinkError as error:
            self.broken.append(error)

    def connect(self, number: int) -> tuple[socket.socket, socket.socket]:
        near, ours = socket.socketpair()
        far, theirs = socket.socketpair()
        assert self.near.add(number, ours) and self.far.add(number, theirs)
        for end in (near, far):
            end.settimeout(60)
            self._ends.append(end)
        return near, far

    def close(self) -> None:
        self.near.close()
        self.far.close()
        for end in self._ends:
            end.close()
        assert self.broken == []


def read_all(end: socket.socket) -> bytes:
    pieces = []
    while piece := end.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def test_bytes_go_both_ways_at_once_and_each_way_ends_by_itself() -> None:
    pair = Pair()
    near, far = pair.connect(1)
    sent = {near: bytes(range(256)) * 8000, far: b"back" * 300_000}

    def send(end: socket.socket) -> None:
        end.sendall(sent[end])
        end.shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=send, args=(end,)) for end in sent]
    for thread in threads:
        thread.start()
    received = list[bytes]()
    reader = threading.Thread(target=lambda: received.append(read_all(far)))
    reader.start()
    assert read_all(near) == sent[far]
    reader.join(60)
    assert received == [sent[near]]
    pair.close()


def test_a_reader_that_stops_holds_up_no_other_connection() -> None:
    pair = Pair()
    slow, _never_read = pair.connect(1)
    slow.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            slow.send(bytes(1 << 16))
    quick, other = pair.connect(2)
    quick.sendall(b"hello")
    assert other.recv(5) == b"hello"
    pair.close()


def test_an_end_that_is_closed_closes_the_other() -> None:
    pair = Pair()
    near, far = pair.connect(1)
    far.close()
    assert near.recv(1) == b""
    near.close()
    pair.close()


BAD = {
    "more than the window": [Frame(message.DATA, 1, bytes(WINDOW)), Frame(message.DATA, 1, b"x")],
    "bytes after the last": [Frame(message.SHUT, 1, b""), Frame(message.DATA, 1, b"x")],
    "room that there is not": [message.frame_of(message.ROOM, message.MoreRoom(1), 1)],
    "room that is no number": [Frame(message.ROOM, 1, b"\xa1x")],
}


def test_frames_that_break_the_protocol() -> None:
    for name, frames in BAD.items():
        tunnels = Tunnels(lambda _frame: None)
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        assert tunnels.add(1, ours)
        with pytest.raises(LinkError):
            for frame in frames:
                tunnels.take(frame)
            raise AssertionError(name)
        tunnels.close()
        theirs.close()


def test_connections_are_bounded_and_late_frames_ignored() -> None:
    tunnels = Tunnels(lambda _frame: None)
    ends = [socket.socketpair() for _number in range(MOST + 1)]
    assert [tunnels.add(number, ours) for number, (ours, _theirs) in enumerate(ends)] == [True] * MOST + [False]
    tunnels.take(Frame(message.DATA, 9999, b"late"))
    tunnels.take(Frame(message.SHUT, 3, CLOSED))
    tunnels.take(Frame(message.SHUT, 3, CLOSED))
    assert ends[3][1].recv(1) == b""
    tunnels.close()
    for _ours, theirs in ends:
        theirs.close()
    ours, theirs = socket.socketpair()
    assert not tunnels.add(5, ours)
    theirs.close()
    assert len(encode(Frame(message.DATA, 1, bytes(PIECE)))) == PIECE + 9
    assert message_of(message.frame_of(message.ROOM, message.MoreRoom(7))).size == 7
