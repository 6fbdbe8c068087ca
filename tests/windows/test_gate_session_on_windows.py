"""``run`` with the gate, from its words to the origin: a real command in a job, the relay beside it, the pipe, the
gate's process. Run by ``dev/wine``."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from test_gate_on_windows import Origin
from test_session_on_windows import Place, place

__all__ = ["place"]

ASKS = """
import os, socket, sys
address, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
for name in sys.argv[1:]:
    with socket.create_connection((address, int(port)), timeout=60) as channel:
        channel.sendall(f"GET http://{name}/ HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        answer = b""
        while piece := channel.recv(65536):
            answer += piece
    print(name, answer.split()[1].decode(), answer.endswith(b"hello"))
"""


@pytest.fixture
def origin() -> Iterator[Origin]:
    made = Origin()
    yield made
    made.close()


def run(place: Place, *words: str) -> tuple[str, ...]:
    (place.project / "asks.py").write_text(ASKS)
    return ("run", *words, "--", sys.executable, "asks.py")


def allow(place: Place, text: str) -> None:
    """Write the user's own policy, which needs no trust."""
    directory = place.root / "home" / "mudroom"
    directory.mkdir(exist_ok=True)
    (directory / "policy.yaml").write_text(text)


def test_an_allowed_host_is_reached_another_refused_and_both_are_journalled(place: Place, origin: Origin) -> None:
    allow(place, f"network:\n  mode: gate\n  allow: ['127.0.0.1:{origin.port}']\n")
    said = place.say(*run(place, "--keep"), f"127.0.0.1:{origin.port}", "denied.example:80")
    assert said.code == 0, said
    assert said.out.split("\r\n")[:2] == [f"127.0.0.1:{origin.port} 200 True", "denied.example:80 403 False"], said
    assert len(origin.requests) == 1
    flows = [json.loads(line) for line in place.say("log", "--json").out.splitlines()]
    shown = {(flow["data"]["host"], flow["data"]["verdict"]) for flow in flows if flow["kind"] == "flow"}
    assert shown == {("127.0.0.1", "allow"), ("denied.example", "deny")}, flows
    assert [thread.name for thread in threading.enumerate() if "gate" in thread.name] == []


def test_without_its_rows_the_gate_is_closed_and_none_still_runs(place: Place) -> None:
    place.certify(fell=("bridge",))
    said = place.say("run", "--", "cmd", "/d", "/c", "exit")
    assert said.code == 125 and said.err.count("\n") == 1, said
    assert "network: gate" in said.err and "bridge fell" in said.err and "--net none" in said.err, said
    assert place.say("run", "--net", "none", "--", "cmd", "/d", "/c", "exit").code == 0


def test_level_0_has_no_gate(place: Place) -> None:
    said = place.say("run", "--level", "0", "--net", "gate", "--", "cmd", "/d", "/c", "exit")
    assert said.code == 125 and "the gate at level 0 needs an AppContainer" in said.err, said
