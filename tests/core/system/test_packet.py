"""Packets with descriptors, over both kinds of socket; frames cut anywhere, and frames of an enemy."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from mudroom.core.system import packet
from mudroom.core.system.packet import PacketReader, framed, packet_pair, send_framed
from mudroom.net.protocol import wire

LONGEST = 1000


@pytest.fixture(params=[True, False], ids=["packets", "frames"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, ...]]:
    monkeypatch.setattr(packet, "HAS_PACKETS", request.param)
    made = packet_pair()
    made[1].setblocking(False)
    yield made
    for end in made:
        end.close()


Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(packet, "HAS_PACKETS", False)
    made = packet_pair()
    made[1].setblocking(False)
    yield made
    for end in made:
        end.close()


def read_all(channel: socket.socket, reader: PacketReader) -> list[tuple[bytes, int, bool]]:
    found: list[tuple[bytes, int, bool]] = []
    while True:
        try:
            data, descriptors, is_cut = reader.receive(channel)
        except BlockingIOError:
            return found
        for descriptor in descriptors:
            assert not os.get_inheritable(descriptor)
            os.close(descriptor)
        found.append((data, len(descriptors), is_cut))
        if not data:
            return found


def test_packets_stay_apart_with_their_descriptors(pair: Pair) -> None:
    theirs, ours = pair
    read, write = os.pipe()
    send_framed(theirs, framed(b"one"), [read, write])
    send_framed(theirs, framed(b"two"))
    send_framed(theirs, framed(b"three"), [write])
    theirs.close()
    reader = PacketReader(LONGEST, 8)
    assert read_all(ours, reader) == [(b"one", 2, False), (b"two", 0, False), (b"three", 1, False), (b"", 0, False)]
    os.close(read)
    os.close(write)


def test_a_message_of_any_length(pair: Pair) -> None:
    """Longer than the socket's buffer: the sender goes on as the reader reads."""
    theirs, ours = pair
    theirs.setblocking(False)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    inbox = wire.Inbox()
    for length in (0, 1, 65_535, 65_536, 400_000):
        parts = wire.packets(wire.AnswerMessage(7, True, None, "w" * length))
        received = None
        while received is None:
            if parts:
                try:
                    rest = parts[0][theirs.send(parts[0]) :]
                    parts[:1] = [rest] if rest else []
                except (BlockingIOError, OSError):
                    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            received = inbox.receive(ours)
        assert wire.to_gate.decode(received[0]) == wire.AnswerMessage(7, True, None, "w" * length)


def test_a_frame_may_come_in_any_pieces(frames: Pair) -> None:
    theirs, ours = frames
    whole = framed(b"first") + framed(b"2") + framed(b"third one")
    for cut in range(len(whole) + 1):
        reader = PacketReader(LONGEST, 8)
        found = []
        for piece in (whole[:cut], whole[cut:]):
            theirs.sendall(piece)
            found += read_all(ours, reader)
        assert [data for data, _count, _cut in found] == [b"first", b"2", b"third one"], cut


@pytest.mark.parametrize("length", [0, LONGEST + 1, 1 << 31, (1 << 32) - 1])
def test_a_length_that_was_not_agreed(frames: Pair, length: int) -> None:
    theirs, ours = frames
    read, write = os.pipe()
    socket.send_fds(theirs, [length.to_bytes(4, "little") + b"more"], [read, write])
    assert read_all(ours, PacketReader(LONGEST, 8)) == [(b"", 2, True)]
    os.close(read)
    os.close(write)


def test_what_is_cut_off_closes_its_descriptors(pair: Pair) -> None:
    """The inbox of either end: no descriptor is left of a message that never ends, or is none."""
    theirs, ours = pair
    read, write = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    send_framed(theirs, framed(b"\1a part"), [read, write])
    theirs.shutdown(socket.SHUT_WR)
    inbox = wire.Inbox()
    assert inbox.receive(ours) is None
    with pytest.raises(EOFError):
        inbox.receive(ours)
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(read)
    os.close(write)


def test_a_packet_without_a_mark(pair: Pair) -> None:
    theirs, ours = pair
    send_framed(theirs, framed(b"\2what"))
    with pytest.raises(wire.BrokenMessage):
        wire.Inbox().receive(ours)
