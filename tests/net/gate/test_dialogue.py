"""What a dialogue charges to the account of its connection, without sockets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import h11

from mudroom.core.network.budget import FLOOR, MemoryBudget
from mudroom.net.gate.dialogue import Dialogue, Message
from mudroom.net.gate.http import MOST_HOPS, with_caller
from mudroom.net.gate.peer import Peer
from mudroom.net.protocol.target import Target


class Deaf(asyncio.Transport):
    def pause_reading(self) -> None:
        return


def test_short_pieces_after_long_ones_give_back_what_the_long_ones_held() -> None:
    """A server alone decides how long its pieces are. Each change from long to short left 44 KiB of the command charged
    for ever."""
    share = MemoryBudget(64 << 20).share()
    account = share.open(lambda: None)
    client, server = Peer(account), Peer(account)
    for peer in (client, server):
        peer.connection_made(Deaf())
    rewrite: Any = SimpleNamespace(sanitizer=None)
    exchange: Any = SimpleNamespace()
    head: Any = SimpleNamespace()
    target: Any = Target
    dialogue = Dialogue(client, server, exchange, Message(head, target, [], False), rewrite)
    side = h11.Connection(h11.CLIENT)
    for _ in range(100):
        for length in (60_000, 1_000):
            server.data_received(b"x" * length)
            dialogue._feed(side, server)
            assert account.held == length
            assert share.held == max(length, FLOOR)


SPELLINGS = (
    b"x-mudroom-fork", b"X-Mudroom-Fork", b"X_MUDROOM_FORK", b"x-mudroom_fork", b"x.mudroom.fork", b"X-MUDROOM--FORK",
    b"xmudroomfork", b"x-mudroom-fork_", b"x|mudroom|fork",
)  # fmt: skip


def test_a_client_cannot_say_who_it_is() -> None:
    for name in SPELLINGS:
        fields = with_caller([(b"accept", b"*/*"), (name, b"admin")], "planner")
        assert fields == [(b"accept", b"*/*"), (b"x-mudroom-fork", b"planner"), (b"x-mudroom-hops", b"1")], name
    assert with_caller([(b"x-mudroom-fork", b"admin")], "") == [(b"x-mudroom-hops", b"1")]
    assert with_caller([(b"x-mudroom-forks", b"2")], "a") is not None


def test_a_circle_ends() -> None:
    fields: list[tuple[bytes, bytes]] | None = []
    for _hop in range(MOST_HOPS):
        assert fields is not None
        fields = with_caller(fields, "a")
    assert fields is not None
    assert with_caller(fields, "a") is None


def test_what_is_no_number_of_hops() -> None:
    for value, hops in ((b"x", b"1"), (b"-5", b"1"), (b"", b"1"), (b"2, 3", b"4"), (b"\xb2", b"1"), (b"07", b"8")):
        assert with_caller([(b"X_Mudroom_Hops", value)], "a") == [(b"x-mudroom-fork", b"a"), (b"x-mudroom-hops", hops)]
    assert with_caller([(b"x-mudroom-hops", b"9" * 5000)], "a") is None
