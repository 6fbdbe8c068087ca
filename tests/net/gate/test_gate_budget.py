"""A tunnel costs the gate a known number of system calls and turns of its loop."""

from __future__ import annotations

import asyncio
import select
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mudroom.core.network.budget import MemoryBudget
from mudroom.core.network.host_rules import HostRule
from mudroom.net import process
from mudroom.net.gate.event_loop import GateLoop
from mudroom.net.gate.resolve import resolve
from mudroom.net.protocol import wire

TUNNELS = 20
TURNS = 6
"""The connection and its request, the client's first bytes, the server's, the client's end, the server's; one more if
the request comes after the connection."""
CALLS = 35
"""Of sockets and epoll: 32 today, turns included."""


class Counts:
    """Calls of the thread of the gate into sockets and epoll."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, _frame: FrameType, event: str, called: Any) -> None:
        owner = getattr(called, "__self__", None)
        if event == "c_call" and isinstance(owner, socket.socket | select.epoll):
            self.calls[called.__name__] += 1


@contextmanager
def gate_in_a_thread(port: int, counts: Counts) -> Iterator[tuple[Any, socket.socket]]:
    """The gate's loop in this process. Yield the place of its listener, and the guard's socket."""
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guard, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guard.settimeout(20)
    listener = socket.create_server(("127.0.0.1", 0))
    rules = [HostRule("allow", "127.0.0.1", (port,), private=True)]

    def run() -> None:
        sys.setprofile(counts)
        with asyncio.Runner(loop_factory=GateLoop) as runner:
            runner.run(process.serve(theirs, resolve, MemoryBudget(1 << 30)))
        sys.setprofile(None)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        message = wire.OpenMessage(["proxy"], rules, False, 60.0, 1, "")
        wire.send(control, message, [channel.fileno(), listener.fileno()])
        with channel, listener:
            yield listener.getsockname(), guard
    finally:
        wire.send(guard, wire.ShutMessage())
        while not isinstance(told(guard), wire.ClosedMessage):
            pass
        control.close()
        thread.join(20)
        theirs.close()
        guard.close()


def told(guard: socket.socket) -> wire.ToHost:
    packet = wire.Inbox().receive(guard)
    assert packet is not None
    message: wire.ToHost = wire.to_host.decode(packet[0])
    return message


def test_a_tunnel_of_one_request() -> None:
    counts = Counts()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        request = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (port, port)
        with gate_in_a_thread(port, counts) as (where, guard):
            for number in range(TUNNELS + 1):
                if number == 1:
                    counts.calls.clear()  # the first one pays for the start
                with socket.create_connection(where) as client:
                    client.sendall(request)
                    assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
                    with server.accept()[0] as accepted:
                        client.sendall(b"?")
                        assert accepted.recv(1) == b"?"
                        accepted.sendall(b"!")
                        assert client.recv(1) == b"!"
                        client.shutdown(socket.SHUT_WR)
                        assert accepted.recv(1) == b""
                assert isinstance(told(guard), wire.BeganMessage)
                ended = told(guard)
                assert isinstance(ended, wire.EndedMessage)
                assert (ended.flow.sent, ended.flow.received) == (1, 1)
            calls = dict(counts.calls)
    each = {name: count / TUNNELS for name, count in calls.items()}
    assert each["poll"] <= TURNS, each
    assert sum(each.values()) <= CALLS, each
    assert each["send"] == 5, "two messages to the host, the answer, and one piece each way"
