"""What the gate adds to a connection: against a direct one, and against the small and the large proxy of the field.

Server and client are the same for all, on loopback: a process that answers 200 bytes to every request, and this one.
The gate judges by 50 rules. What is measured is one client at a time; the server's part is in every figure. CPU is that
of the proxy's process alone: it says what the others' share of the machine hides. A proxy that is not there, does not
start or stops answering is a row of its own.
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Protocol, TypeVar

from bench.measure import (
    Budget,
    Contestant,
    Finding,
    Lap,
    Series,
    against,
    at_most,
    at_most_over,
    at_most_times,
    interleave,
)
from bench.place import Scale
from mudroom.core.network.host_rules import HostRule
from mudroom.net.gate_handle import Gate, GuardHandle, Listener

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + b"x" * 200
_PART = 1 << 18
_REQUESTS = 200
"""In a row, for one median and one 99th percentile."""
_GUARDS, _LISTENERS, _TUNNELS = 100, 10, (100, 1_000)
_SPARE = 500
"""Descriptors of a process that are not for guards, or for connections: those of the bench, or the gate's own."""
_DIRECT, _GATE = "direct", "the gate"
_READY = 60.0
"""Seconds: squid alone takes 10 on a busy machine."""
_END = 10.0
"""Seconds for a proxy to end by itself."""


class RivalGone(Exception):
    """A proxy that does not start."""


class Route(Protocol):
    """What is measured by turns."""

    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int:
        """The process whose CPU is counted; 0: none is."""


RouteType = TypeVar("RouteType", bound=Route)


class Way(NamedTuple):
    """How to reach the server: straight, or by a proxy."""

    name: str
    server: tuple[str, int]
    proxy: tuple[str, int] | None
    pid: int = 0

    def open(self) -> socket.socket:
        """A connection, through a tunnel where there is a proxy."""
        client = socket.create_connection(self.proxy or self.server)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.proxy:
            where = b"%s:%d" % (self.server[0].encode(), self.server[1])
            client.sendall(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where))
            said = b""
            while not said.endswith(b"\r\n\r\n"):
                said += _more(client)
            assert said.split(b" ", 2)[1] == b"200", said
        return client


def gate(base: bytes, scale: Scale) -> Iterator[Finding]:
    size = 512 << 20 if scale.tree > 1_000 else 64 << 20
    rounds = scale.looks
    _raise_limit()
    with ExitStack() as stack:
        server = stack.enter_context(_server())
        ways = [Way(_DIRECT, server, None), stack.enter_context(_gate(server))]
        for name, start in (("tinyproxy", _tinyproxy), ("squid", _squid)):
            try:
                ways.append(stack.enter_context(start(base, server)))
            except RivalGone as error:
                yield absent("gate", f"{name}: {error}")
        for measure in (_throughput(ways, size, rounds), *_latencies(ways, rounds)):
            yield from measure
    yield from _process()


def absent(bench: str, what: str) -> Finding:
    """A row for what could not be measured."""
    return Finding(bench, what, Series((0.0,), "runs"))


def _latencies(ways: list[Way], rounds: int) -> Iterator[Iterator[Finding]]:
    others = {f"{_DIRECT}, p50": at_most_over(0.0005, "0.5 ms")}
    yield _latency(ways, "a new tunnel, a request, closed", _new, rounds, others | {"squid, p50": at_most_times(1.2)})
    yield _latency(ways, "a request in an open tunnel", _kept, rounds, others | {"squid, p50": at_most_times(1)})
    proxies = [way for way in ways if way.proxy and way.name != "tinyproxy"]  # which keeps nothing open
    yield _latency(proxies, "a plain HTTP request, kept alive", _absolute, rounds, {})


def measured(
    ways: Sequence[RouteType], rounds: int, measure: Callable[[RouteType], Iterator[Lap]]
) -> dict[str, Series]:
    """Let the ways run in turn; the laps of each begin with its name, and "NAME, CPU" is its process's. One that fails
    is left out from then on."""
    gone: set[str] = set()

    def contestant(way: RouteType) -> Contestant:
        def attempt() -> list[Lap]:
            if way.name in gone:
                return []
            before = _cpu(way.pid)
            try:
                laps = list(measure(way))
            except (OSError, AssertionError):
                gone.add(way.name)
                return []
            return [*laps, (f"{way.name}, CPU", _cpu(way.pid) - before)] if way.pid else laps

        return attempt

    found = interleave([contestant(way) for way in ways], rounds)
    return {name: series for name, series in found.items() if name.partition(",")[0] not in gone}


def _cpu(pid: int) -> float:
    """Seconds of a whole process so far: the clock of another process, clock_getcpuclockid(3)."""
    return time.clock_gettime(~pid << 3 | 2) if pid else 0.0


def _findings(
    what: str, found: dict[str, Series], names: list[str], point: str, budgets: dict[str, Budget]
) -> Iterator[Finding]:
    """One point (a percentile, CPU) of all ways, and a row for each way that has none."""
    if f"{_GATE}{point}" in found:
        others = against(found, [f"{name}{point}" for name in names if name != _GATE], budgets)
        yield Finding("gate", f"{what}{point}", found[f"{_GATE}{point}"], None, others)


def left_out(bench: str, what: str, found: dict[str, Series], ways: Sequence[Route]) -> Iterator[Finding]:
    for way in ways:
        if way.name not in {name.partition(",")[0] for name in found}:
            yield absent(bench, f"{what}: {way.name} stopped answering")


def _throughput(ways: list[Way], size: int, rounds: int) -> Iterator[Finding]:
    found = {
        name: series if name.endswith(", CPU") else Series(series.values, "MB/s")
        for name, series in measured(ways, rounds, lambda way: iter([(way.name, _megabytes(way, size))])).items()
    }
    names = [way.name for way in ways]
    budgets = {
        _DIRECT: Budget("≥ 60 %", lambda ours, other: ours >= 0.6 * other),
        "squid": Budget("≥ 0.7x", lambda ours, other: ours >= 0.7 * other),
        "squid, CPU": at_most_times(1),
    }
    what = f"a tunnel, {size >> 20} MiB"
    for point in ("", ", CPU"):
        yield from _findings(what, found, names, point, budgets)
    yield from left_out("gate", what, found, ways)


def _megabytes(way: Way, size: int) -> float:
    buffer = bytearray(_PART)
    with way.open() as client:
        started = time.perf_counter()
        client.sendall(b"?ET /%d HTTP/1.1\r\n\r\n" % size)
        left = size
        while left:
            length = client.recv_into(buffer, min(left, _PART))
            assert length, "the tunnel ended early"
            left -= length
        return size / 1e6 / (time.perf_counter() - started)


def _latency(
    ways: list[Way],
    what: str,
    requests: Callable[[Way], Iterator[float]],
    rounds: int,
    budgets: dict[str, Budget],
) -> Iterator[Finding]:
    def measure(way: Way) -> Iterator[Lap]:
        values = list(requests(way))
        yield f"{way.name}, p50", statistics.median(values)
        yield f"{way.name}, p99", statistics.quantiles(values, n=100)[98]

    found = measured(ways, rounds, measure)
    for point in (", p50", ", p99", ", CPU"):
        title = what if point != ", CPU" else f"{_REQUESTS} times {what}"
        yield from _findings(title, found, [way.name for way in ways], point, budgets)
    yield from left_out("gate", what, found, ways)


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
    said = _more(client)
    head = said.index(b"\r\n\r\n") + 4
    while len(said) < head + 200:
        said += _more(client)


def _more(client: socket.socket) -> bytes:
    part = client.recv(65536)
    assert part, "the proxy ended the connection"
    return part


# --- a gate alone ---


def _process() -> Iterator[Finding]:
    starts, guards, rules = [], [], [HostRule("allow", f"h{number}.example") for number in range(50)]
    fitting = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE
    for _ in range(5):
        gate = Gate()
        listener = socket.create_server(("127.0.0.1", 0))
        where = listener.getsockname()
        started = time.perf_counter()
        guards = [gate.open(rules, [Listener("proxy", listener.detach())], ask=False)]
        _refused(where)
        starts.append(time.perf_counter() - started)
        if len(starts) < 5:
            guards[0].shut(1)
            gate.close()
    yield Finding("gate", "from nothing to the first answer", Series(tuple(starts)), at_most(0.1, "100 ms"))
    yield Finding("gate", "resident, one door", _resident(gate.pid))
    with _server() as server:
        guards[0].update([HostRule("allow", server[0], (server[1],), private=True)])
        way = Way(_GATE, server, where)
        for count in _TUNNELS:
            # two descriptors of the gate's each
            yield from _crowd(way, gate.pid, guards[0], min(count, fitting // 2))
    number = min(_GUARDS, fitting // (_LISTENERS + 1))
    for _ in range(number - 1):
        made = [socket.create_server(("127.0.0.1", 0)) for _ in range(_LISTENERS)]
        guards.append(gate.open(rules, [Listener("transparent", one.detach()) for one in made], ask=True))
    _refused(where)
    yield Finding("gate", f"resident, {number} idle doors, too", _resident(gate.pid), at_most(80, "80 MB"))
    for guard in guards:
        guard.shut(1)
    gate.close()


def _crowd(way: Way, pid: int, guard: GuardHandle, number: int) -> Iterator[Finding]:
    """So many tunnels at one time, of which each has moved a request."""
    if number <= 0:
        yield absent("gate", "resident with tunnels: this user may open too few files")
        return
    with ExitStack() as stack:
        for _ in range(number):
            _ask(stack.enter_context(way.open()), b"/", b"x")
            guard.receive()
        yield Finding("gate", f"resident, {number:,} tunnels", _resident(pid), at_most(80, "80 MB"))
    guard.receive()


def _raise_limit() -> None:
    """As the gate does: the soft limit is for programs that use select(2)."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
        try:
            while data := client.recv(65536):
                size = data.split(b" ", 2)[1][1:]
                if not size.isdigit():
                    client.sendall(_ANSWER)
                    continue
                for _ in range(int(size) // _PART):
                    client.sendall(part)
        except OSError:
            return  # the client, or its proxy, is gone: a row says so


@contextmanager
def _gate(server: tuple[str, int]) -> Iterator[Way]:
    """The gate and its host, which is another process than the client, as it is in earnest."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    where = listener.getsockname()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        try:
            ours.close()
            _host(listener, server[1], theirs)
        finally:
            os._exit(0)
    listener.close()
    theirs.close()
    try:
        yield Way(_GATE, server, where, int(ours.recv(20)))
    finally:
        ours.close()
        os.waitpid(pid, 0)


def _host(listener: socket.socket, port: int, parent: socket.socket) -> None:
    """Open a guard, tell the gate's process, and hear what it tells, until the other end is closed."""
    gate = Gate()
    rules = [HostRule("allow", f"h{number}.example") for number in range(49)]
    rules.append(HostRule("allow", "127.0.0.1", (port,), private=True))
    guard = gate.open(rules, [Listener("proxy", listener.detach())], ask=False)
    parent.send(b"%d" % gate.pid)
    ends: list[GuardHandle | socket.socket] = [guard, parent]
    while parent not in select.select(ends, [], [])[0]:
        guard.receive()
    guard.shut(1)
    gate.close()


@contextmanager
def _tinyproxy(base: bytes, server: tuple[str, int]) -> Iterator[Way]:
    port = free_port()
    text = f"Port {port}\nListen 127.0.0.1\nMaxClients 300\nLogLevel Critical\nAllow 127.0.0.1\n"
    with daemon(base, "tinyproxy", text, ["tinyproxy", "-d", "-c"], port) as process:
        yield Way("tinyproxy", server, ("127.0.0.1", port), process.pid)


@contextmanager
def _squid(base: bytes, server: tuple[str, int]) -> Iterator[Way]:
    port = free_port()
    text = (
        f"http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\naccess_log none\ncache_log /dev/null\n"
        "pid_filename none\nshutdown_lifetime 0 seconds\nnetdb_filename none\nvisible_hostname localhost\n"
    )
    # a name of its own: its shared memory must not meet that of another squid, perhaps another user's
    with daemon(base, "squid", text, ["squid", "-N", "-n", f"bench{os.getpid()}", "-f"], port) as process:
        yield Way("squid", server, ("127.0.0.1", port), process.pid)


def find_program(name: str) -> str | None:
    """Debian has its daemons where an ordinary user's PATH does not lead."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")


@contextmanager
def daemon(base: bytes, name: str, text: str, argv: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens on this port, with this configuration. Raise RivalGone if it does not."""
    program = find_program(argv[0])
    if program is None:
        raise RivalGone("not installed")
    path = os.path.join(os.fsdecode(base), f"{name}.conf")
    with open(path, "w") as stream:
        stream.write(text)
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen([program, *argv[1:], path], stdin=nothing, stdout=nothing, stderr=nothing)
    except OSError as error:
        raise RivalGone(f"it cannot be started: {error.strerror}") from error
    try:
        wait_for_port(process, port)
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a proxy. Killed at once, it would leave its shared memory and its files."""
    process.terminate()
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the process listens. Raise RivalGone if it ends, or takes too long."""
    limit = time.monotonic() + _READY
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if process.poll() is not None:
                raise RivalGone(f"it ended with exit code {process.returncode}") from None
            if time.monotonic() > limit:
                raise RivalGone(f"it did not listen within {_READY:.0f} s") from None
            time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
