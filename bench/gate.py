"""What the gate adds to a connection: against a direct one, and against the small and the large proxy of the field.

Server and client are the same for all, on loopback: a process that answers 200 bytes to every request, and this one.
The gate judges by 50 rules. What is measured is one client at a time; the server's part is in every figure.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bench.measure import Budget, Contestant, Finding, Lap, Series, against, at_most, at_most_over, interleave
from bench.place import Scale, have
from mudroom.core.network.host_rules import HostRule
from mudroom.net.door import Door, Gate, Listener

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + b"x" * 200
_PART = 1 << 18
_REQUESTS = 200
"""In a row, for one median and one 99th percentile."""
_DOORS, _LISTENERS, _CONNECTIONS = 100, 10, 1_000
_DIRECT, _GATE = "direct", "the gate"
_READY = 20.0


class Way(NamedTuple):
    """How to reach the server: straight, or by a proxy."""

    name: str
    server: tuple[str, int]
    proxy: tuple[str, int] | None

    def open(self) -> socket.socket:
        """A connection, through a tunnel where there is a proxy."""
        client = socket.create_connection(self.proxy or self.server)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.proxy:
            where = b"%s:%d" % (self.server[0].encode(), self.server[1])
            client.sendall(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where))
            said = b""
            while not said.endswith(b"\r\n\r\n"):
                said += client.recv(4096)
            assert said.split(b" ", 2)[1] == b"200", said
        return client


def gate(base: bytes, scale: Scale) -> Iterator[Finding]:
    size = 512 << 20 if scale.tree > 1_000 else 64 << 20
    rounds = scale.looks
    with ExitStack() as stack:
        server = stack.enter_context(_server())
        ways = [Way(_DIRECT, server, None), Way(_GATE, server, stack.enter_context(_gate(server[1])))]
        for name, start in (("tinyproxy", _tinyproxy), ("squid", _squid)):
            if have(name):
                ways.append(Way(name, server, stack.enter_context(start(base))))
        yield from _throughput(ways, size, rounds)
        yield from _latency(ways, "a new tunnel, a request, closed", _new, rounds)
        yield from _latency(ways, "a request in an open tunnel", _kept, rounds)
        proxies = [way for way in ways if way.proxy and way.name != "tinyproxy"]  # which keeps nothing open
        yield from _latency(proxies, "a plain HTTP request, kept alive", _absolute, rounds)
    yield from _process()


def _throughput(ways: list[Way], size: int, rounds: int) -> Iterator[Finding]:
    def contestant(way: Way) -> Contestant:
        return lambda: [(way.name, _megabytes(way, size))]

    found = {
        name: Series(series.values, "MB/s")
        for name, series in interleave([contestant(way) for way in ways], rounds).items()
    }
    budgets = {_DIRECT: Budget("≥ 60 %", lambda ours, other: ours >= 0.6 * other)}
    others = against(found, [way.name for way in ways if way.name != _GATE], budgets)
    yield Finding("gate", f"a tunnel, {size >> 20} MiB", found[_GATE], None, others)


def _megabytes(way: Way, size: int) -> float:
    buffer = bytearray(_PART)
    with way.open() as client:
        started = time.perf_counter()
        client.sendall(b"?ET /%d HTTP/1.1\r\n\r\n" % size)
        left = size
        while left:
            left -= client.recv_into(buffer, min(left, _PART))
        return size / 1e6 / (time.perf_counter() - started)


def _latency(ways: list[Way], what: str, requests: Callable[[Way], Iterator[float]], rounds: int) -> Iterator[Finding]:
    def contestant(way: Way) -> Contestant:
        def measure() -> Iterator[Lap]:
            values = list(requests(way))
            yield f"{way.name}, p50", statistics.median(values)
            yield f"{way.name}, p99", statistics.quantiles(values, n=100)[98]

        return measure

    found = interleave([contestant(way) for way in ways], rounds)
    for point in ("p50", "p99"):
        budgets = {f"{_DIRECT}, p50": at_most_over(0.0005, "0.5 ms")}
        others = against(found, [f"{way.name}, {point}" for way in ways if way.name != _GATE], budgets)
        yield Finding("gate", f"{what}, {point}", found[f"{_GATE}, {point}"], None, others)


def _new(way: Way) -> Iterator[float]:
    for _ in range(_REQUESTS):
        started = time.perf_counter()
        with way.open() as client:
            _ask(client, b"/", b"x")
        yield time.perf_counter() - started


def _kept(way: Way) -> Iterator[float]:
    with way.open() as client:
        for _ in range(_REQUESTS):
            started = time.perf_counter()
            _ask(client, b"/", b"x")
            yield time.perf_counter() - started


def _absolute(way: Way) -> Iterator[float]:
    host = b"%s:%d" % (way.server[0].encode(), way.server[1])
    with socket.create_connection(way.proxy or way.server) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_REQUESTS):
            started = time.perf_counter()
            _ask(client, b"http://%s/" % host, host)
            yield time.perf_counter() - started


def _ask(client: socket.socket, path: bytes, host: bytes) -> None:
    """In a tunnel it is not quite HTTP: plain requests there are for whoever judges requests."""
    if path == b"/":
        client.sendall(b"?ET / HTTP/1.1\r\n\r\n")
    else:
        client.sendall(b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (path, host))
    said = client.recv(65536)
    head = said.index(b"\r\n\r\n") + 4
    while len(said) < head + 200:
        said += client.recv(65536)


# --- a gate alone ---


def _process() -> Iterator[Finding]:
    starts, doors, rules = [], [], [HostRule("allow", f"h{number}.example") for number in range(50)]
    for _ in range(5):
        door_keeper = Gate()
        listener = socket.create_server(("127.0.0.1", 0))
        where = listener.getsockname()
        started = time.perf_counter()
        doors = [door_keeper.open(rules, [Listener("proxy", listener.detach())], ask=False)]
        _refused(where)
        starts.append(time.perf_counter() - started)
        if len(starts) < 5:
            doors[0].shut(1)
            door_keeper.close()
    yield Finding("gate", "from nothing to the first answer", Series(tuple(starts)), at_most(0.1, "100 ms"))
    yield Finding("gate", "resident, one door", _resident(door_keeper.pid))
    for _ in range(_DOORS - 1):
        made = [socket.create_server(("127.0.0.1", 0)) for _ in range(_LISTENERS)]
        doors.append(door_keeper.open(rules, [Listener("transparent", one.detach()) for one in made], ask=True))
    _refused(where)
    yield Finding("gate", f"resident, {_DOORS} idle doors", _resident(door_keeper.pid), at_most(80, "80 MB"))
    with _server() as server:
        doors[0].update([HostRule("allow", server[0], (server[1],), private=True)])
        way = Way(_GATE, server, where)
        clients = [way.open() for _ in range(_CONNECTIONS)]
        yield Finding("gate", f"resident, {_CONNECTIONS:,} tunnels, too", _resident(door_keeper.pid))
        for client in clients:
            client.close()
    for door in doors:
        door.shut(1)
    door_keeper.close()


def _refused(where: tuple[str, int]) -> None:
    with socket.create_connection(where) as client:
        client.sendall(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 403 ")


def _resident(pid: int) -> Series:
    with open(f"/proc/{pid}/statm") as stream:
        pages = int(stream.read().split()[1])
    return Series((pages * os.sysconf("SC_PAGE_SIZE") / 1e6,), "MB")


# --- servers and proxies ---


@contextmanager
def _server() -> Iterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    pid = os.fork()
    if not pid:
        try:
            _serve(listener)
        finally:
            os._exit(0)
    where = listener.getsockname()
    listener.close()
    try:
        yield where
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _serve(listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer, args=(client,), daemon=True).start()


def _answer(client: socket.socket) -> None:
    part = b"x" * _PART
    with client:
        while data := client.recv(65536):
            size = data.split(b" ", 2)[1][1:]
            if not size.isdigit():
                client.sendall(_ANSWER)
                continue
            for _ in range(int(size) // _PART):
                client.sendall(part)


@contextmanager
def _gate(port: int) -> Iterator[tuple[str, int]]:
    """The gate and its host, which is another process than the client, as it is in earnest."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    where = listener.getsockname()
    stop, stopped = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(stopped)
            _host(listener, port, stop)
        finally:
            os._exit(0)
    listener.close()
    try:
        yield where
    finally:
        os.close(stopped)
        os.waitpid(pid, 0)
        os.close(stop)


def _host(listener: socket.socket, port: int, stop: int) -> None:
    """Opens a door and hears what it tells, until the pipe's other end is closed."""
    keeper = Gate()
    rules = [HostRule("allow", f"h{number}.example") for number in range(49)]
    rules.append(HostRule("allow", "127.0.0.1", (port,), private=True))
    door = keeper.open(rules, [Listener("proxy", listener.detach())], ask=False)
    ends: list[Door | int] = [door, stop]
    while stop not in select.select(ends, [], [])[0]:
        door.receive()
    door.shut(1)
    keeper.close()


@contextmanager
def _tinyproxy(base: bytes) -> Iterator[tuple[str, int]]:
    port = _free_port()
    text = f"Port {port}\nListen 127.0.0.1\nMaxClients 300\nLogLevel Critical\nAllow 127.0.0.1\n"
    with _daemon(base, "tinyproxy", text, ["tinyproxy", "-d", "-c"], port) as where:
        yield where


@contextmanager
def _squid(base: bytes) -> Iterator[tuple[str, int]]:
    port = _free_port()
    text = (
        f"http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\naccess_log none\ncache_log /dev/null\n"
        "pid_filename none\nshutdown_lifetime 0 seconds\nnetdb_filename none\n"
    )
    with _daemon(base, "squid", text, ["squid", "-N", "-f"], port) as where:
        yield where


@contextmanager
def _daemon(base: bytes, name: str, text: str, argv: list[str], port: int) -> Iterator[tuple[str, int]]:
    path = os.path.join(os.fsdecode(base), f"{name}.conf")
    with open(path, "w") as stream:
        stream.write(text)
    program = shutil.which(argv[0]) or argv[0]
    nothing = subprocess.DEVNULL
    process = subprocess.Popen([program, *argv[1:], path], stdout=nothing, stderr=nothing)
    try:
        limit = time.monotonic() + _READY
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if time.monotonic() > limit or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield "127.0.0.1", port
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
