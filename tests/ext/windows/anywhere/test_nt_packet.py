"""Frames of packets with sockets, as Windows has them. Descriptions of sockets are a stand-in's here."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from mudroom.ext.windows.system import nt_packet
from mudroom.ext.windows.system.nt_packet import (
    DESCRIPTION,
    PacketSocket,
    SocketPacketReader,
    framed,
    packet_pair,
    send_framed,
)

Pair = tuple[PacketSocket, PacketSocket]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(
        nt_packet, "_describe", lambda number, process: (b"%d,%d" % (number, process)).ljust(DESCRIPTION, b"\0")
    )
    monkeypatch.setattr(nt_packet, "_made", lambda described: int(described.partition(b",")[0]))
    ours, theirs = packet_pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_packets_and_their_sockets_arrive_however_the_stream_is_cut(pair: Pair) -> None:
    ours, theirs = pair
    ours.process = 7
    send_framed(ours, framed(b"one"), [4, 5])
    send_framed(ours, framed(b"two"))
    ours.close()
    data = b""
    while piece := theirs.recv(65536):
        data += piece
    assert b"4,7" in data and b"5,7" in data
    into, out = packet_pair()
    out.setblocking(False)
    reader, received = SocketPacketReader(10, 3), list[object]()
    for at in range(len(data)):
        into.sendall(data[at : at + 1])
        out.settimeout(30)
        out.recv(1, socket.MSG_PEEK)
        out.setblocking(False)
        try:
            received.append(reader.receive(out))
        except BlockingIOError:
            continue
    assert received == [(b"one", [4, 5], False), (b"two", [], False)]
    into.close()
    out.settimeout(30)
    assert reader.receive(out) == (b"", [], False)
    out.close()


@pytest.mark.parametrize(
    "data",
    [
        framed(b"cut")[:-1],
        b"\x00",
        (4).to_bytes(4, "little") + bytes(4 * DESCRIPTION) + framed(b"more sockets")[4:],
        framed(b"longer than agreed"),
        bytes(8),
        b"\xff" * 64,
    ],
    ids=["cut", "head", "sockets", "longer", "empty", "noise"],
)
def test_what_is_no_frame_is_a_packet_that_was_cut_off(pair: Pair, data: bytes) -> None:
    ours, theirs = pair
    ours.sendall(data)
    ours.shutdown(socket.SHUT_WR)
    theirs.settimeout(30)
    assert SocketPacketReader(10, 3).receive(theirs) == (b"", [], True)


def test_no_socket_is_passed_to_a_process_that_is_not_known(pair: Pair) -> None:
    with pytest.raises(OSError, match="no process is known"):
        send_framed(pair[0], framed(b"x"), [4])
