"""The gate's process in a Windows Python: guards, questions, rules, flows, its end. Run by ``dev/wine``."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.core.network.flow import FlowQuestion
from mudroom.core.network.host_entry import parse_entry
from mudroom.core.network.host_rules import HostRule
from mudroom.ext.windows.net.nt_process import is_readable
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import Library
from mudroom.net.gate_handle import Gate, GuardHandle, Listener, Received

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


class Origin:
    """A server of HTTP on the loopback. It keeps the requests that it has got."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests = list[bytes]()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                channel, _address = self._listener.accept()
                with channel:
                    data = b""
                    while b"\r\n\r\n" not in data and (piece := channel.recv(65536)):
                        data += piece
                    self.requests.append(data)
                    channel.sendall(ANSWER)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def origin() -> Iterator[Origin]:
    made = Origin()
    yield made
    made.close()


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.close()


def proxy() -> tuple[Listener, tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    return Listener("proxy", listener.detach()), address


def get(address: tuple[str, int], port: int, host: str = "127.0.0.1") -> bytes:
    with socket.create_connection(address, timeout=30) as channel:
        name = f"{host}:{port}"
        channel.sendall(f"GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := channel.recv(65536):
            answer += piece
        return answer


def received(guard: GuardHandle, wanted: Callable[[Received], bool]) -> Received:
    """Return the first message that is wanted."""
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        if is_readable(guard.fileno(), 1):
            for message in guard.receive():
                if wanted(message):
                    return message
    raise AssertionError("the gate does not say it")


def allow(port: int) -> HostRule:
    return parse_entry(f"127.0.0.1:{port}", "allow", "test")


def test_an_allowed_host_is_reached_and_another_is_not(gate: Gate, origin: Origin) -> None:
    listener, address = proxy()
    guard = gate.open([allow(origin.port)], [listener], ask=False)
    try:
        answer = get(address, origin.port)
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"hello")
        assert get(address, origin.port, "denied.example").startswith(b"HTTP/1.1 403")
        assert len(origin.requests) == 1
    finally:
        flows = guard.shut(10)
    said = {(flow.host, flow.verdict) for flow in flows}
    assert ("denied.example", "deny") in said, flows
    allowed = next(flow for flow in flows if flow.host == "127.0.0.1")
    assert allowed.received >= 5, allowed


def test_a_question_is_asked_and_both_answers_are_kept_to(gate: Gate, origin: Origin) -> None:
    listener, address = proxy()
    guard = gate.open([], [listener], ask=True)
    try:
        for allowed, status in ((False, b"HTTP/1.1 403"), (True, b"HTTP/1.1 502")):
            answers = list[bytes]()
            host = f"{'yes' if allowed else 'no'}.invalid"
            thread = threading.Thread(target=lambda: answers.append(get(address, 80, host)))  # noqa: B023 - joined below
            thread.start()
            question = received(guard, lambda message: isinstance(message, FlowQuestion))
            assert isinstance(question, FlowQuestion) and question.host == host
            guard.answer(question.identity, allowed, None)
            thread.join(30)
            assert answers[0].startswith(status), answers
    finally:
        flows = guard.shut(10)
    assert [flow.verdict for flow in flows if flow.host == "yes.invalid"] == ["allow"]


@pytest.mark.slow
def test_a_gate_that_dies_is_replaced_with_its_listeners(origin: Origin) -> None:
    gate = Gate()
    listener, address = proxy()
    guard = gate.open([allow(origin.port)], [listener], ask=False)
    try:
        assert get(address, origin.port).startswith(b"HTTP/1.1 200")
        first = gate.pid
        assert gate._handle is not None
        gate._handle.kill_child()
        while gate.pid in (0, first):
            assert is_readable(guard.fileno(), 30)
            guard.receive()
        assert get(address, origin.port).startswith(b"HTTP/1.1 200")
    finally:
        guard.shut(10)
        handle = gate._handle
        gate.close()
    assert handle is not None and gate.pid == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(address, timeout=30)


STARTS = """
import sys
sys.path[:0] = {path!r}
from mudroom.ext.windows.net.nt_process import PROGRAM, start
channel, child = start(PROGRAM, 1 << 29)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_the_gate_s_process_ends_when_its_parent_is_killed() -> None:
    """By its job: it has nothing else to do with the parent's end than a socket."""
    library = Library()
    words = [sys.executable, "-c", STARTS.format(path=sys.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        child = library.OpenProcess(w.SYNCHRONIZE, 0, pid)
        try:
            assert library.WaitForSingleObject(child, 0) != w.WAIT_OBJECT_0
            parent.kill()
            assert library.WaitForSingleObject(child, 30_000) == w.WAIT_OBJECT_0
        finally:
            library.CloseHandle(child)
