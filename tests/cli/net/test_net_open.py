"""``mudroom net open``: a port of this machine for a server in a fork, the same the next time."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import forked
from box import NAMESPACES
from clocks import give_way
from conftest import Place, environment

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.skipif(not NAMESPACES, reason="user namespaces are not permitted here"),
]

SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
while True:
    client, _ = server.accept()
    client.sendall(sys.argv[2].encode())
    client.close()
"""


def told(place: Place, *words: str) -> str:
    done = forked.run(words, cwd=place.project, env=environment(place), timeout=80)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@contextmanager
def opened(place: Place, port: int, fork: str) -> Iterator[int]:
    words = ["net", "open", str(port), "--fork", fork, "--json"]
    process = forked.popen(words, cwd=place.project, env=environment(place), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    row: dict[str, Any] = json.loads(process.stdout.readline())
    with socket.create_connection(("127.0.0.1", row["port"]), 20) as client:
        assert client.recv(100, socket.MSG_WAITALL).decode() == row["fork"] == fork
    yield row["port"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_a_second_one_takes_another_port_and_keeps_it(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for fork in ("a", "b"):
        words = [
            "exec",
            "--fork",
            fork,
            "--background",
            "--json",
            "--",
            sys.executable,
            "-I",
            "-c",
            SERVER,
            str(port),
            fork,
        ]
        row = json.loads(told(place, *words))
        while "up" not in told(place, "ps", "--output", row["id"]):
            give_way()
    with opened(place, port, "a") as first, opened(place, port, "b") as second:
        assert first != second
    with opened(place, port, "b") as again:
        assert again == second, "it is free, and so is the first; the address is the one of before"
    told(place, "ps", "--end", "--all")
