"""What inspection adds to HTTPS: against a direct connection, and against the proxy that people inspect with.

Server and client are the same for all, on loopback, both in Python: TLS 1.3, a response of 200 bytes or a long one.
Each proxy ends TLS on both sides, with certificates verified, and sees the requests.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import ssl
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bench.gate import _free_port
from bench.measure import Contestant, Finding, Lap, Series, against, interleave
from bench.place import Scale, have
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.net.door import Door, Gate, Listener
from mudroom.net.inspection.authority import Issuer, certificate_of, load_authority

_HOST = "127.0.0.1"
_PART = 1 << 18
_REQUESTS = 200
_DIRECT, _GATE, _RIVAL = "direct", "the gate, inspecting", "mitmproxy"
_READY = 30.0


class Way(NamedTuple):
    name: str
    port: int
    proxy: tuple[str, int] | None
    context: ssl.SSLContext
    pid: int = 0

    def open(self) -> ssl.SSLSocket:
        client = socket.create_connection(self.proxy or (_HOST, self.port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.proxy:
            where = f"{_HOST}:{self.port}".encode()
            client.sendall(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where))
            said = b""
            while not said.endswith(b"\r\n\r\n"):
                said += client.recv(4096)
            assert said.split(b" ", 2)[1] == b"200", said
        return self.context.wrap_socket(client, server_hostname=_HOST)


def inspecting(base: bytes, scale: Scale) -> Iterator[Finding]:
    size = 256 << 20 if scale.tree > 1_000 else 32 << 20
    with ExitStack() as stack:
        roots = load_authority(base + b"/origin", b"/origin")
        port = stack.enter_context(_server(Issuer(roots).context(_HOST, "http/1.1")))
        trusted = certificate_of(roots)
        ways = [Way(_DIRECT, port, None, ssl.create_default_context(cadata=trusted))]
        ways.append(stack.enter_context(_gate(base, port, trusted)))
        if have("mitmdump"):
            ways.append(stack.enter_context(_mitmproxy(base, port, trusted)))
        yield from _latency(ways, "HTTPS: a connection, a request, closed", _new, scale.looks)
        yield from _latency(ways, "HTTPS: a request in an open connection", _kept, scale.looks)
        yield from _throughput(ways, size, scale.looks)
        for way in ways:
            if way.pid:
                yield Finding("inspect", f"resident afterwards, {way.name}", _resident(way.pid))


def _resident(pid: int) -> Series:
    with open(f"/proc/{pid}/statm") as stream:
        return Series((int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6,), "MB")


def _latency(ways: list[Way], what: str, requests: Callable[[Way], Iterator[float]], rounds: int) -> Iterator[Finding]:
    def contestant(way: Way) -> Contestant:
        def measure() -> Iterator[Lap]:
            values = list(requests(way))
            yield f"{way.name}, p50", statistics.median(values)
            yield f"{way.name}, p99", statistics.quantiles(values, n=100)[98]

        return measure

    found = interleave([contestant(way) for way in ways], rounds)
    for point in ("p50", "p99"):
        others = against(found, [f"{way.name}, {point}" for way in ways if way.name != _GATE], {})
        yield Finding("inspect", f"{what}, {point}", found[f"{_GATE}, {point}"], None, others)


def _new(way: Way) -> Iterator[float]:
    for _ in range(_REQUESTS):
        started = time.perf_counter()
        with way.open() as client:
            _ask(client, way.port)
        yield time.perf_counter() - started


def _kept(way: Way) -> Iterator[float]:
    with way.open() as client:
        for _ in range(_REQUESTS):
            started = time.perf_counter()
            _ask(client, way.port)
            yield time.perf_counter() - started


def _ask(client: ssl.SSLSocket, port: int) -> None:
    client.sendall(b"GET /200 HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (_HOST.encode(), port))
    said = client.recv(65536)
    while b"\r\n\r\n" not in said or len(said) < said.index(b"\r\n\r\n") + 4 + 200:
        said += client.recv(65536)


def _throughput(ways: list[Way], size: int, rounds: int) -> Iterator[Finding]:
    def contestant(way: Way) -> Contestant:
        return lambda: [(way.name, _megabytes(way, size))]

    found = {
        name: Series(series.values, "MB/s")
        for name, series in interleave([contestant(way) for way in ways], rounds).items()
    }
    others = against(found, [way.name for way in ways if way.name != _GATE], {})
    yield Finding("inspect", f"HTTPS: a response of {size >> 20} MiB", found[_GATE], None, others)


def _megabytes(way: Way, size: int) -> float:
    buffer = bytearray(_PART)
    with way.open() as client:
        started = time.perf_counter()
        client.sendall(b"GET /%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (size, _HOST.encode(), way.port))
        got = 0
        while got < size:
            got += client.recv_into(buffer, _PART)
        return size / 1e6 / (time.perf_counter() - started)


# --- the server and the proxies ---


@contextmanager
def _server(context: ssl.SSLContext) -> Iterator[int]:
    listener = socket.create_server((_HOST, 0), backlog=1024)
    pid = os.fork()
    if not pid:
        try:
            while True:
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_answer, args=(context, client), daemon=True).start()
        finally:
            os._exit(0)
    port = int(listener.getsockname()[1])
    listener.close()
    try:
        yield port
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _answer(context: ssl.SSLContext, client: socket.socket) -> None:
    part = b"x" * _PART
    try:
        with context.wrap_socket(client, server_side=True) as inside:
            while data := inside.recv(65536):
                size = int(data.split(b" ", 2)[1][1:])
                inside.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + part[: min(size, 200)])
                for left in range(size - min(size, 200), 0, -_PART):
                    inside.sendall(part[:left])
    except OSError:
        return  # the client has gone


@contextmanager
def _gate(base: bytes, port: int, roots: str) -> Iterator[Way]:
    authority = load_authority(base + b"/vault", b"/project")
    listener = socket.create_server((_HOST, 0), backlog=1024)
    where = listener.getsockname()
    keeper = Gate()
    rules = [HostRule("allow", f"h{number}.example") for number in range(49)]
    rules.append(HostRule("allow", _HOST, (port,), private=True, inspect=True, methods=("GET",)))
    inspection = Inspection(authority, roots=roots)
    door = keeper.open(rules, [Listener("proxy", listener.detach())], ask=False, inspection=inspection)
    over = threading.Event()
    reader = threading.Thread(target=_read, args=(door, over))
    reader.start()
    try:
        yield Way(_GATE, port, where, ssl.create_default_context(cadata=certificate_of(authority)), keeper.pid)
    finally:
        over.set()
        reader.join()
        door.shut(1)
        keeper.close()


def _read(door: Door, over: threading.Event) -> None:
    while not over.is_set():
        if select.select([door], [], [], 0.1)[0]:
            door.receive()


@contextmanager
def _mitmproxy(base: bytes, port: int, roots: str) -> Iterator[Way]:
    directory = os.fsdecode(base) + "/mitmproxy"
    os.makedirs(directory, exist_ok=True)
    with open(directory + "/roots.pem", "w") as stream:
        stream.write(roots)
    own, trusted = _free_port(), f"ssl_verify_upstream_trusted_ca={directory}/roots.pem"
    command = ["mitmdump", "-q", "--listen-host", _HOST, "-p", str(own), "--set", f"confdir={directory}"]
    process = subprocess.Popen([*command, "--set", trusted, "--set", "connection_strategy=eager"])
    try:
        limit = time.monotonic() + _READY
        while True:
            try:
                socket.create_connection((_HOST, own)).close()
                break
            except ConnectionRefusedError:
                if time.monotonic() > limit or process.poll() is not None:
                    raise
                time.sleep(0.05)
        context = ssl.create_default_context(cafile=directory + "/mitmproxy-ca-cert.pem")
        yield Way(_RIVAL, port, (_HOST, own), context, process.pid)
    finally:
        process.kill()
        process.wait()
