"""What a dialogue charges to the account of its connection, without sockets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import h11

from mudroom.core.network.budget import FLOOR, MemoryBudget
from mudroom.net.gate.dialogue import Dialogue, Message
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
