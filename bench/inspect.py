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

from bench.gate import RivalGone, absent, end, find_program, free_port, left_out, measured, wait_for_port
from bench.measure import Finding, Lap, Series, against
from bench.place import Scale
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.ext.inspection.authority import Issuer, certificate_of, load_authority
from mudroom.net.gate_handle import Gate, GuardHandle, Listener

_HOST = "127.0.0.1"
_PART = 1 << 18
_REQUESTS = 200
_DIRECT, _GATE, _RIVAL = "direct", "the gate inspecting", "mitmproxy"


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
                said += _some(client.recv(4096))
            assert said.split(b" ", 2)[1] == b"200", said
        return self.context.wrap_socket(client, server_hostname=_HOST)


def inspecting(base: bytes, scale: Scale) -> Iterator[Finding]:
    size = 256 << 20 if scale.tree > 1_000 else 32 << 20
    with ExitStack() as stack:
        try:
            roots = load_authority(base + b"/origin", b"/origin")
            issuer = Issuer(roots)
        except ImportError as error:
            yield absent("inspect", f"inspection needs {error.name}, which is not installed")
            return
        port = stack.enter_context(_server(issuer.context(_HOST, "http/1.1")))
        trusted = certificate_of(roots)
        ways = [Way(_DIRECT, port, None, ssl.create_default_context(cadata=trusted))]
        ways.append(stack.enter_context(_gate(base, port, trusted)))
        try:
            ways.append(stack.enter_context(_mitmproxy(base, port, trusted)))
        except RivalGone as error:
            yield absent("inspect", f"{_RIVAL}: {error}")
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
    def measure(way: Way) -> Iterator[Lap]:
        values = list(requests(way))
        yield f"{way.name}, p50", statistics.median(values)
        yield f"{way.name}, p99", statistics.quantiles(values, n=100)[98]

    found = measured(ways, rounds, measure)
    for point in (", p50", ", p99", ", CPU"):
        title = what if point != ", CPU" else f"{_REQUESTS} times {what}"
        yield from _findings(title, found, ways, point)
    yield from left_out("inspect", what, found, ways)


def _findings(what: str, found: dict[str, Series], ways: list[Way], point: str) -> Iterator[Finding]:
    if f"{_GATE}{point}" in found:
        others = against(found, [f"{way.name}{point}" for way in ways if way.name != _GATE], {})
        yield Finding("inspect", f"{what}{point}", found[f"{_GATE}{point}"], None, others)


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
    said = _some(client.recv(65536))
    while b"\r\n\r\n" not in said or len(said) < said.index(b"\r\n\r\n") + 4 + 200:
        said += _some(client.recv(65536))


def _some(part: bytes) -> bytes:
    assert part, "the proxy ended the connection"
    return part


def _throughput(ways: list[Way], size: int, rounds: int) -> Iterator[Finding]:
    found = {
        name: series if name.endswith(", CPU") else Series(series.values, "MB/s")
        for name, series in measured(ways, rounds, lambda way: iter([(way.name, _megabytes(way, size))])).items()
    }
    what = f"HTTPS: a response of {size >> 20} MiB"
    for point in ("", ", CPU"):
        yield from _findings(what, found, ways, point)
    yield from left_out("inspect", what, found, ways)


def _megabytes(way: Way, size: int) -> float:
    buffer = bytearray(_PART)
    with way.open() as client:
        started = time.perf_counter()
        client.sendall(b"GET /%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (size, _HOST.encode(), way.port))
        got = 0
        while got < size:
            length = client.recv_into(buffer, _PART)
            assert length, "the proxy ended the connection"
            got += length
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
    gate = Gate()
    rules = [HostRule("allow", f"h{number}.example") for number in range(49)]
    rules.append(HostRule("allow", _HOST, (port,), private=True, inspect=True, methods=("GET",)))
    inspection = Inspection(authority, roots=roots)
    guard = gate.open(rules, [Listener("proxy", listener.detach())], ask=False, inspection=inspection)
    over = threading.Event()
    reader = threading.Thread(target=_read, args=(guard, over))
    reader.start()
    try:
        yield Way(_GATE, port, where, ssl.create_default_context(cadata=certificate_of(authority)), gate.pid)
    finally:
        over.set()
        reader.join()
        guard.shut(1)
        gate.close()


def _read(guard: GuardHandle, over: threading.Event) -> None:
    while not over.is_set():
        if select.select([guard], [], [], 0.1)[0]:
            guard.receive()


@contextmanager
def _mitmproxy(base: bytes, port: int, roots: str) -> Iterator[Way]:
    directory = os.fsdecode(base) + "/mitmproxy"
    os.makedirs(directory, exist_ok=True)
    with open(directory + "/roots.pem", "w") as stream:
        stream.write(roots)
    program = find_program("mitmdump")
    if program is None:
        raise RivalGone("not installed")
    own, trusted = free_port(), f"ssl_verify_upstream_trusted_ca={directory}/roots.pem"
    command = [program, "-q", "--listen-host", _HOST, "-p", str(own), "--set", f"confdir={directory}"]
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [*command, "--set", trusted, "--set", "connection_strategy=eager"],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
        )
    except OSError as error:
        raise RivalGone(f"it cannot be started: {error.strerror}") from error
    try:
        wait_for_port(process, own)
        try:
            context = ssl.create_default_context(cafile=directory + "/mitmproxy-ca-cert.pem")
        except OSError as error:
            raise RivalGone(f"it has made no authority: {error.strerror}") from error
        yield Way(_RIVAL, port, (_HOST, own), context, process.pid)
    finally:
        end(process)
