"""A request from a fork to a server in another, beside the same server on this machine's loopback, through the gate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench.measure import Against, Finding, Lap, Rival, at_most_over, interleave
from bench.place import Place, Scale, discard, new_place, run
from mudroom.core.network.fork_rule import parse_forks
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.settings import Settings
from mudroom.session import Session
from mudroom.session.confinement.host_approver import HostAnswers

_OUTER, _INNER = 8471, 8472
"""Ports of this machine and of the fork. A rule for the first gives each command a listener there."""
_REQUESTS = 100
_SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
open(sys.argv[2], "w").close()
while True:
    with server.accept()[0] as client:
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
"""
_CLIENT = """
import http.client, json, socket, sys, time
name, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
address, took = socket.gethostbyname(name), []
for _ in range(number):
    began = time.perf_counter()
    client = http.client.HTTPConnection(address, port, timeout=20)
    client.request("GET", "/", headers={"Host": f"{name}:{port}"})
    assert client.getresponse().read() == b"ok"
    client.close()
    took.append(time.perf_counter() - began)
print(json.dumps(took))
"""
_FORK, _LOOPBACK = "to another fork", "the same server on this machine's loopback, through the gate"
_OVER = at_most_over(0.0003, "0.3 ms")


def neighbours(base: bytes, scale: Scale) -> Iterator[Finding]:
    rules = [parse_rule(f"127.0.0.1:{_OUTER}", "allow")]
    forks = (*parse_forks([f"server:{_INNER}"], "reach"), *parse_forks([_INNER], "show"))
    with ExitStack() as stack:
        place = stack.enter_context(new_place(base, "neighbour"))
        stack.enter_context(_outside(place))
        session = stack.enter_context(
            place.session(settings=Settings(fork_rules=forks), hosts=HostAnswers(lambda: rules))
        )
        stack.enter_context(_inside(session))

        def requests(what: str, host: str, port: int) -> Iterator[Lap]:
            words = [sys.executable, "-c", _CLIENT, host, str(port), str(_REQUESTS)]
            result = run(session, *words)
            for seconds in json.loads(result.stdout or b"[]"):
                yield what, seconds
            discard(session, result)

        found = interleave(
            [
                lambda: requests(_FORK, "server.mudroom.internal", _INNER),
                Rival(lambda: requests(_LOOPBACK, "127.0.0.1", _OUTER), _LOOPBACK),
            ],
            scale.applies,
        )
    other = (Against(_LOOPBACK, found[_LOOPBACK], _OVER),) if _LOOPBACK in found else ()
    yield Finding("forks", "a request to a server in another fork, on a new connection", found[_FORK], None, other)


@contextmanager
def _outside(place: Place) -> Iterator[None]:
    ready = place.root + b"/outside"
    server = subprocess.Popen([sys.executable, "-c", _SERVER, str(_OUTER), ready])
    try:
        _wait(lambda: ready)
        yield
    finally:
        server.terminate()
        server.wait()


@contextmanager
def _inside(session: Session) -> Iterator[None]:
    fork = session.forks.new("server")
    argv = [sys.executable.encode(), b"-c", _SERVER.encode(), str(_INNER).encode(), b"ready"]
    thread = threading.Thread(target=lambda: session.run(argv, fork="server"))
    thread.start()
    try:
        _wait(lambda: fork.upper + b"/ready")
        yield
    finally:
        session.sandboxes.interrupt(fork="server")
        thread.join()


def _wait(path: Callable[[], bytes]) -> None:
    until = time.monotonic() + 20
    while not os.path.exists(path()):
        assert time.monotonic() < until, "the server does not start"
        time.sleep(0.005)
