"""Messages about a gate process that cannot be started, does not read, or ends."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Iterator

import pytest

from mudroom.core.network.host_rules import HostRule
from mudroom.errors import MudroomError
from mudroom.net import gate_handle as module
from mudroom.net.gate_handle import Gate, GuardHandle, Listener
from whole_text import told

AGAIN = "(run the command again; mudroom doctor tries the gate)"


@pytest.fixture(autouse=True)
def no_descriptor_left() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) == before


def opened(gate: Gate, *rules: HostRule) -> GuardHandle:
    return gate.open(rules, [], ask=False)


def test_a_gate_that_is_closed() -> None:
    gate = Gate()
    gate.close()
    assert told(lambda: opened(gate)) == "the gate is closed: its session has ended (run the command again)"


def test_a_python_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an update of the system's Python, in a session that was open meanwhile."""
    monkeypatch.setattr(sys, "executable", "/no/such/python3")
    assert told(lambda: opened(Gate())) == f"the gate cannot be started: No such file or directory {AGAIN}"


def test_a_gate_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is longer than the socket's buffer."""
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    gate = Gate("import time; time.sleep(1000)")
    rules = [HostRule("allow", f"{number:05}.{'x' * 50}.example") for number in range(20_000)]
    assert told(lambda: opened(gate, *rules)) == f"the gate does not answer: it has read nothing for 0.05 s {AGAIN}"
    gate.close()
    assert gate.pid == 0


def test_a_gate_that_ends_again_and_again() -> None:
    gate, listener = Gate("import os; os.read(0, 1 << 16)"), socket.create_server(("127.0.0.1", 0))
    where = listener.getsockname()
    guard = gate.open([], [Listener("proxy", listener.detach())], ask=False)
    said = ""
    while not said:
        select.select([guard], [], [])
        try:
            guard.receive()
        except MudroomError as error:
            said = str(error)
    assert said == f"the gate ended again and again; the network of this command is cut {AGAIN}"
    assert guard.fileno() == -1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where, timeout=20)
    assert guard.shut(1) == []
    gate.close()
