"""``run`` with the gate, from its words to the origin: a real command in a job, the relay beside it, the pipe, the
gate's process. Run by ``dev/wine``."""

from __future__ import annotations

import errno
import json
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.cli import project_session
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.session.session import Session
from test_gate_on_windows import ANSWER, Origin
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


def test_rules_and_answers_decide_about_hosts_and_all_is_journalled(
    place: Place, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def answer(question: FlowQuestion, _over: int) -> FlowAnswer:
        asked.append(question.host)
        return FlowAnswer(question.host == "yes.invalid")

    def set_approver(_ask: object, _context: object, session: Session) -> None:
        session.machine.ask_about_hosts(answer)

    monkeypatch.setattr(project_session, "set_host_approver", set_approver)
    allowed = f"127.0.0.1:{origin.port}"
    allow(place, f"network:\n  mode: gate\n  allow: ['{allowed}']\n  deny: [denied.invalid]\n")
    said = place.say(*run(place, "--no"), allowed, "denied.invalid", "yes.invalid", "no.invalid", "no.invalid")
    assert said.out.split("\r\n")[:5] == [
        f"{allowed} 200 True",
        "denied.invalid 403 False",
        "yes.invalid 502 False",
        "no.invalid 403 False",
        "no.invalid 403 False",
    ], said
    assert asked == ["yes.invalid", "no.invalid"]
    assert len(origin.requests) == 1
    assert "the gate is reached by a named pipe and a relay in the container" in said.err, said
    events = [json.loads(line) for line in place.say("log", "--json").out.splitlines()]
    flows = [event["data"] for event in events if event["kind"] == "flow"]
    assert {(flow["host"], flow["verdict"]) for flow in flows} == {
        ("127.0.0.1", "allow"),
        ("denied.invalid", "deny"),
        ("yes.invalid", "allow"),
        ("no.invalid", "deny"),
    }
    reached = next(flow for flow in flows if flow["host"] == "127.0.0.1")
    assert reached["received"] == len(ANSWER) and reached["sent"] == len(origin.requests[0]), reached


WAITS = """
import os, socket
port = int(os.environ["HTTP_PROXY"].rpartition(":")[2])
channel = socket.create_connection(("127.0.0.1", port), timeout=60)
channel.sendall(b"GET http://asked.invalid/ HTTP/1.1\\r\\n")  # and no more: the gate waits for the rest
print(port, flush=True)
os._exit(3)
"""


def test_the_end_of_a_command_leaves_no_port_pipe_or_thread(place: Place) -> None:
    (place.project / "waits.py").write_text(WAITS)
    said = place.say("run", "--no", "--", sys.executable, "waits.py")
    assert said.code == 3, said
    port = int(said.out.split()[0])
    for address in ("127.0.0.1", "127.0.0.2"):
        with socket.socket() as client:
            client.settimeout(30)
            assert client.connect_ex((address, port)) == errno.ECONNREFUSED
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


def test_the_explanation_tells_how_the_command_is_held_to_the_gate(place: Place) -> None:
    said = place.say("run", "--explain", "--", "cmd", "/d", "/c", "exit")
    assert said.code == 0 and "named pipe" in said.out, said
