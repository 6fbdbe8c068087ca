"""Questions and their answers, limits, and the death of gates and of hosts: through real gate processes."""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mudroom
from clocks import give_way
from mudroom.core.network.host_rules import HostRule
from mudroom.errors import MudroomError
from mudroom.net.gate_handle import Gate
from tiers import each, half
from town import WAIT, OpenGuard, Town, echo, read_all, read_exactly


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as town:
        yield town


SOURCE = str(Path(mudroom.__file__).parent.parent)
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def allow(name: str, *ports: int) -> HostRule:
    return HostRule("allow", name, ports, private=True)


def connect(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


def is_open(client: socket.socket) -> bool:
    """Whether the tunnel has come about."""
    return read_exactly(client, len(ESTABLISHED)) == ESTABLISHED  # and nothing of what the server may have said


def guarded(town: Town, talk: Callable[[socket.socket], object]) -> tuple[int, OpenGuard]:
    """The port of a server that talks so, ``db.example``, and a guard that allows it."""
    port = town.serve(talk)
    town.names({"db.example": [["127.0.0.1"]]})
    return port, town.guard(allow("db.example", port))


def memory(pid: int) -> int:
    """Resident, in MiB."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) >> 10


# --- questions ---


def test_connections_wait_for_one_answer_and_go_on(town: Town) -> None:
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    guard = town.guard(HostRule("ask", "db.example", private=True), ask=True)
    clients = [guard.connect(connect("db.example", port)) for _ in range(20)]
    guard.wait(questions=1)
    (question,) = guard.questions
    assert (question.host, question.port, question.way) == ("db.example", port, "connect")
    assert town.lookups() == []
    guard.guard.answer(question.identity, True, None)
    assert all(is_open(client) for client in clients)
    assert is_open(guard.connect(connect("db.example", port)))  # this guard has its answer
    for client in clients:
        client.close()
    guard.wait(flows=20)
    assert len(guard.questions) == 1


def test_an_answer_is_for_its_guard_host_and_port(town: Town) -> None:
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    first, second = (town.guard(HostRule("ask", "db.example", private=True), ask=True) for _ in range(2))
    client = first.connect(connect("db.example", port))
    first.wait(questions=1)
    first.guard.answer(first.questions[0].identity, True, None)
    assert is_open(client)
    first.connect(connect("db.example", port + 1 if port < 65535 else 1024))
    first.wait(questions=2)
    second.connect(connect("db.example", port))
    second.wait(questions=1)


def test_no_and_nobody_and_a_client_that_does_not_wait(town: Town) -> None:
    guard = town.guard(ask=True)
    client = guard.connect(connect("no.example", 443))
    guard.wait(questions=1)
    guard.guard.answer(guard.questions[0].identity, False, None)
    assert b"answered earlier for this host" in read_all(client)
    assert b"answered earlier for this host" in read_all(guard.connect(connect("no.example", 443)))
    guard.connect(connect("gone.example", 443)).close()
    guard.wait(flows=3, questions=2)
    assert "ended before it was answered" in guard.flows[-1].reason
    hasty = town.guard(ask=True, ask_timeout=0.05)
    assert b"there was no answer in time" in read_all(hasty.connect(connect("late.example", 443)))
    guard.guard.answer(999, True, None)  # to a question that there is not
    assert town.lookups() == []


def test_where_nobody_can_be_asked_it_is_denied_at_once(town: Town) -> None:
    guard = town.guard(HostRule("ask", "db.example"))
    assert b"nobody is there to be asked" in read_all(guard.connect(connect("db.example", 443)))
    assert guard.flow().verdict == "deny"
    assert guard.questions == []


def test_rules_that_change_answer_questions(town: Town) -> None:
    port = town.serve(echo)
    town.names({"a.db.example": [["127.0.0.1"]]})
    guard = town.guard(ask=True)
    hosts = ("a.db.example", "b.db.example", "c.db.example")
    clients = [guard.connect(connect(host, port)) for host in hosts]
    guard.wait(questions=3)
    asked = {question.host: question.identity for question in guard.questions}
    guard.guard.update([allow("a.db.example", port)])
    assert is_open(clients[0])
    guard.guard.answer(asked["b.db.example"], False, HostRule("deny", "*.db.example", source="never"))
    assert b"never: *.db.example denies it" in read_all(clients[2])
    assert read_all(clients[1]).startswith(b"HTTP/1.1 403 ")


def test_this_machine_is_not_asked_about(town: Town) -> None:
    guard = town.guard(ask=True)
    assert read_all(guard.connect(connect("localhost", 3000))).startswith(b"HTTP/1.1 403 ")
    assert read_all(guard.connect(connect("x.localhost", 443))).startswith(b"HTTP/1.1 403 ")
    assert guard.questions == []


def test_an_answer_for_ever_is_a_rule(town: Town) -> None:
    port = town.serve(echo)
    town.names({"a.db.example": [["127.0.0.1"]], "b.db.example": [["127.0.0.1"]]})
    guard = town.guard(ask=True)
    client = guard.connect(connect("a.db.example", port))
    guard.wait(questions=1)
    rule = HostRule("allow", "*.db.example", (port,), private=True, source="permissions.yaml:4")
    guard.guard.answer(guard.questions[0].identity, True, rule)
    assert is_open(client)
    assert is_open(guard.connect(connect("b.db.example", port)))
    client.close()
    assert guard.flow().rule == "permissions.yaml:4"
    client = guard.connect(connect("c.other.example", 443))
    guard.wait(questions=2)
    never = HostRule("deny", "**.other.example", source="permissions.yaml:5")
    guard.guard.answer(guard.questions[1].identity, False, never)
    read_all(client)
    read_all(guard.connect(connect("d.other.example", 443)))
    guard.wait(flows=3)
    assert {flow.rule for flow in guard.flows[1:]} == {"permissions.yaml:5"}


def test_too_many_questions_are_denied(tmp_path: Path) -> None:
    with Town(tmp_path, constants={"gate.guard.MAX_QUESTIONS": 3}) as town:
        guard = town.guard(ask=True)
        clients = [guard.connect(connect(f"h{number}.example", 443)) for number in range(4)]
        guard.wait(questions=3, flows=1)
        assert guard.flow().reason == "no rule names it; too many connections wait for an answer"
        for question in guard.questions:
            guard.guard.answer(question.identity, False, None)
        for client in clients:
            assert read_all(client).startswith(b"HTTP/1.1 403 ")


def test_little_is_held_of_whoever_waits(town: Town) -> None:
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    guard = town.guard(HostRule("ask", "db.example", private=True), ask=True)
    client = guard.connect(connect("db.example", port))
    guard.wait(questions=1)
    before, sent = memory(town.gate.pid), 0
    client.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while True:
            sent += client.send(b"?" * 65536)
    assert memory(town.gate.pid) - before <= 1
    client.settimeout(WAIT)
    guard.guard.answer(guard.questions[0].identity, True, None)
    assert is_open(client)
    client.shutdown(socket.SHUT_WR)
    assert len(read_all(client)) == sent


def test_rules_change_while_a_guard_is_open(town: Town) -> None:
    port, guard = guarded(town, echo)
    client = guard.connect(connect("db.example", port))
    assert is_open(client)
    guard.guard.update([HostRule("deny", "db.example")])
    assert read_all(guard.connect(connect("db.example", port))).startswith(b"HTTP/1.1 403 ")
    client.sendall(b"?")
    assert client.recv(1) == b"?"  # what is open stays open
    guard.guard.update([allow("db.example", port)])
    assert is_open(guard.connect(connect("db.example", port)))


def test_more_rules_than_a_packet_holds(town: Town) -> None:
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    many = [HostRule("allow", f"host{number}.example", source="policy.yaml") for number in range(20_000)]
    guard = town.guard(*many, allow("db.example", port))
    assert is_open(guard.connect(connect("db.example", port)))
    guard.guard.update([*many, HostRule("deny", "db.example")])
    assert read_all(guard.connect(connect("db.example", port))).startswith(b"HTTP/1.1 403 ")


# --- bad input ---


HASTE = dict.fromkeys(
    (
        "gate.request_head.HEAD_TIME",
        "listeners.accept.FIRST_BYTE",
        "listeners.tunnel.FIRST_BYTES",
        "listeners.socks.PATIENCE",
    ),
    0.5,
)


@pytest.mark.parametrize(
    ("words", "said"),
    half(
        [
            (b"", b""),
            (b"CONNECT db.example:443 HTTP/1.1\r\nHost: d", b"HTTP/1.1 408 "),
            (b"GET http://db.example/ HTTP/1.1\r\n", b"HTTP/1.1 408 "),
            (b"GET http://db.example/ HTTP/1.1\r\nX: " + b"a" * 20_000, b"HTTP/1.1 431 "),
            (b"a" * 20_000, b"HTTP/1.1 431 "),
            (b"\x05", b"\x05\x01"),
            (b"\x05\x01\x00\x05\x01\x00\x03\xff", b"\x05\x00\x05\x01"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"HTTP/1.1 408 "),
            (b"\0\0\0\0\r\n\r\n", b"HTTP/1.1 400 "),
            (b"\r\n\r\n", b"HTTP/1.1 400 "),
        ]
    ),
)
def test_garbage_halves_and_silence_end_soon(tmp_path: Path, words: bytes, said: bytes) -> None:
    with Town(tmp_path, constants=HASTE) as town:
        guard = town.guard(allow("db.example", 443), ask=True)
        assert read_all(guard.connect(words)).startswith(said)
        if words:
            assert guard.flow().verdict == "deny"
        assert town.lookups() == []


def test_a_tunnel_that_begins_with_half_a_hello_ends_soon(tmp_path: Path) -> None:
    with Town(tmp_path, constants=HASTE) as town:
        port, guard = guarded(town, echo)
        client = guard.connect(connect("db.example", port))
        assert is_open(client)
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert read_all(client) == b"\x15\x03\x03\x00\x02\x02\x31"
        assert guard.flow().verdict == "deny"


def test_a_tunnel_may_be_silent_for_as_long_as_it_likes(tmp_path: Path) -> None:
    with Town(tmp_path, constants=HASTE) as town:
        port, guard = guarded(town, echo)
        client = guard.connect(connect("db.example", port))
        assert is_open(client)
        client.settimeout(1.0)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.sendall(b"?")
        assert client.recv(1) == b"?"


def test_a_client_that_never_reads_fills_nothing(town: Town) -> None:
    def flood(client: socket.socket) -> None:
        while True:
            client.sendall(b"x" * 65536)

    port, guard = guarded(town, flood)
    client = guard.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(connect("db.example", port))
    assert is_open(client)
    before = memory(town.gate.pid)
    other = guard.connect(connect("db.example", port))
    assert is_open(other)
    assert len(read_exactly(other, 50_000_000)) == 50_000_000  # meanwhile the first one's is stuck
    assert memory(town.gate.pid) - before <= 3
    client.close()
    other.close()
    guard.wait(flows=2)


def test_a_server_that_dies_ends_the_tunnel(town: Town) -> None:
    def die(client: socket.socket) -> None:
        client.recv(1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()  # with a reset

    port, guard = guarded(town, die)
    client = guard.connect(connect("db.example", port))
    assert is_open(client)
    client.sendall(b"?")
    assert read_all(client) == b""
    assert "reset" in guard.flow().error.lower()


@pytest.mark.slow
def test_a_thousand_connections_at_one_time(town: Town) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"this user may have {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    port, guard = guarded(town, echo)
    clients = [guard.connect(connect("db.example", port)) for _ in range(400)]
    assert all(is_open(client) for client in clients)
    idle = [guard.connect() for _ in range(600)]
    for client in clients:
        client.sendall(b"?")
    assert all(client.recv(1) == b"?" for client in clients)
    assert memory(town.gate.pid) <= 80
    for client in (*clients, *idle):
        client.close()
    guard.wait(flows=400)
    assert {flow.verdict for flow in guard.flows} == {"allow"}


def test_a_gate_without_descriptors_lives_on(town: Town) -> None:
    port, guard = guarded(town, echo)
    assert is_open(guard.connect(connect("db.example", port)))
    _soft, hard = resource.prlimit(town.gate.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(town.gate.pid, resource.RLIMIT_NOFILE, (40, hard))
    clients = [guard.connect(connect("db.example", port)) for _ in range(60)]
    for client in clients:
        client.close()
    resource.prlimit(town.gate.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert is_open(guard.connect(connect("db.example", port)))


def test_a_connection_too_many_closes_the_oldest_without_a_request_which_is_told_once(tmp_path: Path) -> None:
    with Town(tmp_path, constants={"gate.guard.MAX_CONNECTIONS": 5}) as town:
        guard = town.guard(ask=True)
        asking = guard.connect(connect("db.example", 443))
        guard.wait(questions=1)
        half = [guard.connect(b"CONNECT ") for _ in range(10)]
        assert [read_all(client) for client in half[:6]] == [b""] * 6
        assert "there are 5 connections; those that have waited longest for a request are closed" in guard.flow().reason
        late = guard.connect(connect("web.example", 443))
        guard.wait(questions=2)
        for number, client in enumerate((asking, late)):
            guard.guard.answer(guard.questions[number].identity, False, None)
            assert client.recv(4096).startswith(b"HTTP/1.1 403 "), "half requests do not stand in its way"
        guard.wait(flows=3)


def test_where_all_have_requests_the_connection_too_many_is_cut(tmp_path: Path) -> None:
    with Town(tmp_path, constants={"gate.guard.MAX_CONNECTIONS": 5}) as town:
        guard = town.guard(ask=True)
        clients = [guard.connect(connect(f"h{number}.example", 443)) for number in range(5)]
        guard.wait(questions=5)
        for _ in range(3):
            assert read_all(guard.connect(b"x")) == b""
        assert "there are 5 connections; further ones are closed" in guard.flow().reason
        clients.pop().close()
        while len(guard.questions) < 6:  # until the gate has seen that one is gone
            guard.connect(connect("db.example", 443))
            guard.take(guard.guard.receive())
        assert len([flow for flow in guard.flows if "there are" in flow.reason]) <= 2


def test_whoever_cannot_be_told_is_not_let_in(tmp_path: Path) -> None:
    """The host does not read: what could not be journalled does not happen."""
    with Town(tmp_path, constants={"gate.guard.MAX_UNSENT": 3}) as town:
        guard = town.guard()
        answers = []
        for number in range(3000):
            answers.append(read_all(guard.connect(connect(f"{'x' * 60}.h{number}.example", 443))))
            if not answers[-1]:
                break
        assert answers[0].startswith(b"HTTP/1.1 403 ")
        assert answers[-1] == b""
        guard.wait(flows=len(answers) - 1)


# --- the end of gates, guards and hosts ---


def test_a_gate_that_is_killed_takes_its_connections_and_another_takes_over(town: Town) -> None:
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    guard = town.guard(allow("db.example", port), ask=True)
    client = guard.connect(connect("db.example", port))
    assert is_open(client)
    guard.connect(connect("other.example", 443))
    guard.wait(questions=1)
    number, killed = guard.guard.fileno(), town.gate.pid
    os.kill(killed, signal.SIGKILL)
    assert read_all(client) == b""
    flow = guard.flow()
    assert (flow.host, flow.error) == ("db.example", "the gate ended")
    assert (guard.guard.fileno(), town.gate.pid != killed) == (number, True)
    assert is_open(guard.connect(connect("db.example", port)))
    guard.connect(connect("another.example", 443))
    guard.wait(questions=2)
    assert guard.questions[1].identity > guard.questions[0].identity  # an old answer is not for a new question


def test_connections_wait_while_no_gate_is_there(town: Town) -> None:
    """Nothing else takes them: they stand in the queue of the listener, which the host has kept."""
    port, guard = guarded(town, echo)
    assert is_open(guard.connect(connect("db.example", port)))
    os.kill(town.gate.pid, signal.SIGKILL)
    os.waitid(os.P_PID, town.gate.pid, os.WEXITED | os.WNOWAIT)
    client = guard.connect(connect("db.example", port))
    guard.flow()
    assert is_open(client)


@each(
    "packet",
    [
        b"garbage",
        b"\0{}",
        b'\0["ended",1]',
        b'\0["asked",[1,2,3,4]]',
        b'\0["open",[],[],true,1,1,""]',
        b"\0[" + b"[" * 50_000,
        b"\0" + b"x" * 70_000,
    ],
)
def test_a_gate_that_was_taken_over_can_tell_its_host_nothing_but_messages(packet: bytes) -> None:
    """What the process says is a stranger's word; it also sends a descriptor, which is not kept."""
    program = (
        "import socket; _, given, _, _ = socket.recv_fds(socket.socket(fileno=0), 70_000, 10);"
        f"socket.send_fds(socket.socket(fileno=given[0]), [{packet!r}], [0])"
    )
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    gate = Gate(program)
    opened = OpenGuard(gate.open([], [], ask=True), None, [])
    with pytest.raises(MudroomError, match="again and again"):
        opened.wait(flows=1)
    gate.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_guard_that_is_shut_cuts_what_is_open_and_tells_the_last_flows(town: Town) -> None:
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    guard, other = town.guard(allow("db.example", port), ask=True), town.guard(allow("db.example", port))
    client, stays = guard.connect(connect("db.example", port)), other.connect(connect("db.example", port))
    assert is_open(client)
    assert is_open(stays)
    waits = guard.connect(connect("other.example", 443))
    guard.wait(questions=1)
    flows = guard.guard.shut(WAIT)
    assert {(flow.host, flow.verdict) for flow in flows} == {("db.example", "allow"), ("other.example", "deny")}
    assert read_all(client) == read_all(waits) == b""
    with pytest.raises(ConnectionRefusedError):
        guard.connect()
    stays.sendall(b"?")
    assert stays.recv(1) == b"?"
    assert guard.guard.shut(1) == []


@pytest.mark.parametrize("was_allowed", [False, True])
def test_bytes_that_clients_sent_before_the_end_are_judged(
    town: Town, monkeypatch: pytest.MonkeyPatch, was_allowed: bool
) -> None:
    """The command ends, and its clients with it, before a busy gate has read their last bytes. A rule that was taken
    back before does not hold for them."""

    def resumed(channel: socket.socket, seconds: float) -> bool:
        os.kill(town.gate.pid, signal.SIGCONT)  # the gate is told to shut by then
        return bool(select.select([channel], [], [], seconds)[0])

    guard = town.guard(*[allow("bad.example", 443)] * was_allowed)
    clients = [guard.connect(b"CONNECT bad.example:443 HTTP/1.1\r\n") for _ in range(3)]
    assert read_all(guard.connect(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")  # the others were accepted before
    guard.take(guard.guard.receive())
    os.kill(town.gate.pid, signal.SIGSTOP)
    while ") T " not in Path(f"/proc/{town.gate.pid}/stat").read_text():
        give_way()
    for client in clients:
        client.sendall(b"Host: bad.example:443\r\n\r\n")
        client.close()
    monkeypatch.setattr("mudroom.net.gate_handle.is_readable", resumed)
    if was_allowed:
        guard.guard.update([])
    flows = guard.guard.shut(WAIT)
    assert [(flow.host, flow.verdict) for flow in flows if flow.host] == [("bad.example", "deny")] * 3


def test_a_gate_that_hangs_keeps_nobody_waiting(town: Town) -> None:
    port, guard = guarded(town, echo)
    assert is_open(guard.connect(connect("db.example", port)))
    guard.take(guard.guard.receive())
    os.kill(town.gate.pid, signal.SIGSTOP)
    (flow,) = guard.guard.shut(0.05)
    assert (flow.host, flow.error) == ("db.example", "the gate ended")
    with pytest.raises(ConnectionRefusedError):
        guard.connect()


@pytest.mark.parametrize("fork", [False, True], ids=["alone", "with a child"])
def test_the_gate_ends_with_its_host(fork: bool) -> None:
    program = (
        f"import sys; sys.path.insert(0, {SOURCE!r}); import socket;"
        "from mudroom.net.gate_handle import Gate, Listener; gate = Gate();"
        "guard = gate.open([], [Listener('proxy', socket.create_server(('127.0.0.1', 0)).detach())], ask=False);"
        f"print(gate.pid, flush=True); import os; {fork} and os.fork(); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        handle = os.pidfd_open(int(host.stdout.readline()))
        host.kill()
    try:
        assert select.select([handle], [], [], WAIT)[0]  # a pidfd is readable when its process has ended
    finally:
        os.close(handle)


def test_threads_share_a_gate_that_dies(town: Town) -> None:
    guard = town.guard()
    assert read_all(guard.connect(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    guards = [town.guard() for _ in range(20)]
    first = town.gate.pid
    os.kill(first, signal.SIGKILL)

    def revive(one: OpenGuard) -> None:
        select.select([one.guard], [], [], WAIT)
        one.take(one.guard.receive())

    threads = [threading.Thread(target=revive, args=(one,)) for one in guards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert town.gate.pid != first
    assert all(read_all(one.connect(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ") for one in guards)


def test_the_hosts_end_loads_no_event_loop() -> None:
    program = f"import sys; sys.path.insert(0, {SOURCE!r}); import mudroom.net.gate_handle; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert not {"asyncio", "ssl", "threading", "h11", "uvloop", "logging"} & set(done.stdout.split())


def test_a_closed_gate_shuts_its_guards(town: Town) -> None:
    guard = town.guard(ask=True)
    assert read_all(guard.connect(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    town.gate.close()
    select.select([guard.guard], [], [], WAIT)
    guard.take(guard.guard.receive())
    assert guard.guard.fileno() == -1
    with pytest.raises(ConnectionRefusedError):
        guard.connect()
    with pytest.raises(MudroomError, match="closed"):
        town.gate.open([], [], ask=False)
