"""One end of an inspected HTTP/2 connection, and its lanes, without sockets: what the other side can make it hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("h2", reason="inspection needs the library h2")
from hyperframe.frame import SettingsFrame

from mudroom.core.network.budget import MemoryBudget
from mudroom.ext.inspection.frame import PREFACE
from mudroom.ext.inspection.placeholder import parse_credential, with_value
from mudroom.ext.inspection.sanitizer import Sanitizer
from mudroom.ext.inspection.stream import Lane, StreamEnd
from mudroom.ext.inspection.tls import TlsConnection

HEADERS = [(b":status", b"103"), (b"link", b"x" * 8000)]


class Deaf(asyncio.Transport):
    """Takes nothing: its peer is told to pause at the first byte."""

    def __init__(self, peer: TlsConnection) -> None:
        super().__init__()
        self._peer = peer

    def write(self, data: Any) -> None:  # noqa: ARG002
        self._peer.pause_writing()

    def is_closing(self) -> bool:
        return False


def opened() -> StreamEnd:
    peer = TlsConnection(MemoryBudget(64 << 20).share().open(lambda: None))
    peer.connection_made(Deaf(peer))
    return StreamEnd(peer, is_client=False)


def test_small_pieces_that_wait_are_joined() -> None:
    """Two bytes in a piece of their own take forty."""
    lane = Lane(None, 0, 1, lambda: None)
    for _ in range(10_000):
        lane.put(b"ab")
    assert len(lane._pieces) < 20
    taken = b""
    while lane.holds():
        taken += lane.take(777)
    assert taken == b"ab" * 10_000


def test_the_taking_end_does_not_choose_where_a_value_is_cut() -> None:
    """By its window it could have had seven characters of each."""
    credential = with_value(parse_credential("TOKEN", "api.example"), "kX8pQ2vR", bytes(range(32)))
    for most in range(1, 9):
        lane = Lane(None, 0, 1, lambda: None)
        lane.search = Sanitizer((credential,)).stream()
        lane.put(b"your token: kX8pQ2vR.")
        taken = b""
        while lane.holds():
            taken += lane.take(most)
        assert taken == b"your token: mudroomm.", most


def test_the_other_side_does_not_choose_how_much_the_compression_remembers() -> None:
    async def run() -> int:
        end = opened()
        end.peer.data_received(PREFACE + SettingsFrame(0, {1: 1 << 30}).serialize())
        await end.events()
        return end.h2.encoder.header_table_size

    assert asyncio.run(run()) == 4096


def test_headers_that_nobody_takes_are_charged_and_hold_up_the_other_end() -> None:
    async def run() -> None:
        end = opened()
        before = end.peer.account.held
        writing = asyncio.create_task(end.write())
        await asyncio.sleep(0)
        for _ in range(9):
            end.has_framed(HEADERS)
        assert end.is_behind
        assert end.peer.account.held - before > 64 << 10
        waiting = asyncio.create_task(end.keep_up())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        end.peer.resume_writing()
        await asyncio.wait_for(waiting, 60)
        assert end.peer.account.held == before
        writing.cancel()

    asyncio.run(run())
