"""Names of forks at the gate: never looked up, never sent to another proxy, opened by no rule; the host decides."""

from __future__ import annotations

import select
import socket
import time
from pathlib import Path

from mudroom.core.network.fork_host import ForkDial
from mudroom.core.network.host_rules import HostRule, parse_rule
from town import WAIT, OpenGuard, Town, read_all, read_until

WIDE = [
    HostRule("allow", "*", (80, 443, 8000), private=True),
    HostRule("allow", "**.mudroom.internal", (80, 443, 8000), private=True),
    HostRule("allow", "coder.mudroom.internal", (8000,), private=True),
    parse_rule("0.0.0.0/0", "allow", private=True),
]
SPELLED = ("coder.mudroom.internal", "coder.mudroom.internal.", "CODER.MUDROOM.INTERNAL", "Coder.MudRoom.Internal.")
NO_FORK = (
    "mudroom.internal", "MUDROOM.internal.", "a.coder.mudroom.internal", "www.a.coder.mudroom.internal.",
    "coder.mudroom.internal..", "coder\uff0emudroom.internal", "coder.\uff4dudroom.internal",
    "coder.mudroom.internal\u3002", "coder.mudroom.int\u0435rnal", "coder%2emudroom.internal", "_.mudroom.internal",
)  # fmt: skip


def head(host: str, *, connect: bool = False) -> bytes:
    where = f"{host}:8000".encode()
    if connect:
        return b"CONNECT " + where + b" HTTP/1.1\r\nHost: " + where + b"\r\n\r\n"
    return b"GET http://" + where + b"/x HTTP/1.1\r\nHost: " + where + b"\r\nConnection: close\r\n\r\n"


def dialled(guard: OpenGuard) -> ForkDial:
    """Wait for the gate's next request for a connection."""
    limit = time.monotonic() + WAIT
    while time.monotonic() < limit:
        select.select([guard.guard], [], [], 0.1)
        told = guard.guard.receive()
        guard.take(told)
        for one in told:
            if isinstance(one, ForkDial):
                return one
    raise AssertionError("the gate asked for no connection")


def test_a_name_of_a_fork_is_never_looked_up(tmp_path: Path) -> None:
    heads: list[bytes] = []

    def proxy(client: socket.socket) -> None:
        heads.append(client.recv(65536))

    with Town(tmp_path) as first:
        port = first.serve(proxy)
        for upstream in ("", f"http://127.0.0.1:{port}"):
            with Town(tmp_path, upstream) as town:
                guard = town.guard(*WIDE, ask=True)
                for host in SPELLED:
                    for connect in (False, True):
                        client = guard.connect(head(host, connect=connect))
                        request = dialled(guard)
                        assert (request.host, request.port) == ("coder.mudroom.internal", 8000)
                        assert request.path == ("" if connect else "/x")
                        guard.guard.dialled(request.identity, -1, "coder does not show it", is_refused=True)
                        answer = read_all(client)
                        assert answer.startswith(b"HTTP/1.1 403") and b"coder does not show it" in answer, answer
                for host in NO_FORK:
                    for connect in (False, True):
                        answer = read_all(guard.connect(head(host, connect=connect)))
                        assert answer[9:12] in (b"400", b"403"), (host, answer)
                assert town.lookups() == [] and guard.questions == []
    assert heads == []


def test_the_host_makes_the_connection_and_the_gate_names_the_caller(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        guard = town.guard()
        client = guard.connect(
            head("coder.mudroom.internal").replace(b"\r\n\r\n", b"\r\nX_Mudroom_Fork: admin\r\n\r\n")
        )
        request = dialled(guard)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            guard.guard.dialled(request.identity, theirs.fileno(), rule="network.agents: a -> coder")
            ours.settimeout(WAIT)
            sent = read_until(ours, b"\r\n\r\n").lower()
            assert b"admin" not in sent and b"x-mudroom-hops: 1" in sent, sent
            ours.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            assert read_all(client).endswith(b"ok")
        flow = guard.flow()
    assert (flow.verdict, flow.rule, flow.address, flow.status) == (
        "allow",
        "network.agents: a -> coder",
        "fork coder",
        200,
    )


def test_a_deny_holds_without_a_word_of_the_host(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        guard = town.guard(*WIDE, parse_rule("*.mudroom.internal", "deny"))
        assert read_all(guard.connect(head("coder.mudroom.internal"))).startswith(b"HTTP/1.1 403")
        assert guard.flow().verdict == "deny"


def test_answers_that_nobody_waits_for_are_closed(tmp_path: Path) -> None:
    """A connection for a number that was never asked for, and for one whose client has gone."""
    with Town(tmp_path) as town:
        guard = town.guard()
        client = guard.connect(head("coder.mudroom.internal"))
        request = dialled(guard)
        client.close()
        guard.guard.dialled(request.identity, -1, "no")
        for identity in (request.identity + 1000, request.identity):
            ours, theirs = socket.socketpair()
            with ours:
                guard.guard.dialled(identity, theirs.fileno())
                theirs.close()
                ours.settimeout(WAIT)
                read_all(ours)
