"""Approvals by a client, spoken to by hand: a thousand at once, and answers that are none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from wire import Stdio, mudroom, server

from conftest import Place
from mudroom.ext.agents.mcp.connection import MOST_CALLS
from tiers import half

pytestmark = pytest.mark.slow
POLICY = "commands: {classes: {destructive: require_approval}, approval_timeout: 60s}\n"


def asks(place: Place) -> None:
    place.write("kept", "k")
    place.write(".mudroom/policy.yaml", POLICY)


def question(client: Stdio) -> Any:
    """Return the next question of the server's."""
    while (message := client.hear()).get("method") != "elicitation/create":
        client.heard.append(message)
    return message


@pytest.mark.parametrize(
    "result",
    half(
        [
            {"action": "accept", "content": {"answer": "yes"}},
            {"action": "accept", "content": {"answer": True}},
            {"action": "accept", "content": {}},
            {"action": "accept", "content": None},
            {"action": "accept"},
            {"action": "cancel", "content": {"answer": "once"}},
            {"content": {"answer": "once"}},
            {},
        ]
    ),
)
def test_an_answer_that_is_none_of_those_offered_refuses(place: Place, result: dict[str, Any]) -> None:
    asks(place)
    with server(place) as client:
        client.initialize(elicitation={})
        call = client.start("bash", command="rm kept")
        asked = question(client)
        assert set(asked["params"]["requestedSchema"]["properties"]["answer"]["enum"]) >= {"once", "no"}
        client.say({"id": asked["id"], "result": result})
        done = client.answer(call)["result"]
        assert done["isError"] and "refused by the client" in done["content"][0]["text"]
        assert client.call("read", path="kept")["structuredContent"]["text"] == "k"


def test_mudroom_approve_may_answer_first(place: Place) -> None:
    asks(place)
    with server(place) as client:
        client.initialize(elicitation={})
        call = client.start("bash", command="rm kept")
        asked = question(client)
        name = asked["params"]["message"].rpartition("mudroom approve ")[2].strip()
        assert mudroom(place, "approve", name).returncode == 0
        assert client.answer(call)["result"]["structuredContent"]["exit_code"] == 0
        withdrawn = [note for note in client.heard if note.get("method") == "notifications/cancelled"]
        assert [note["params"]["requestId"] for note in withdrawn] == [asked["id"]]
        client.say({"id": asked["id"], "result": {"action": "accept", "content": {"answer": "no"}}})  # too late
        assert client.ask("ping") == {}


def test_a_cancelled_call_withdraws_its_question(place: Place) -> None:
    asks(place)
    with server(place) as client:
        client.initialize(elicitation={})
        call = client.start("bash", command="rm kept")
        question(client)
        client.say({"method": "notifications/cancelled", "params": {"requestId": call}})
        assert client.call("read", path="kept")["structuredContent"]["text"] == "k"
        while "nothing" not in (listed := mudroom(place, "approve").stdout + mudroom(place, "approve").stderr):
            assert "rm kept" in listed  # until the call's thread has seen it


def test_a_client_that_hangs_up_during_a_question_ends_the_server(place: Place) -> None:
    asks(place)
    with server(place) as client:
        client.initialize(elicitation={})
        client.start("bash", command="rm kept")
        question(client)
        assert client.hang_up() == 0
    assert (place.project / "kept").exists()


def test_with_ask_never_nobody_is_asked(place: Place) -> None:
    asks(place)
    with server(place, "--ask", "never") as client:
        client.initialize(elicitation={})
        assert client.call("bash", command="rm kept")["isError"]
        assert client.heard == []


@pytest.mark.deep
@pytest.mark.limit(180)
def test_a_thousand_approvals_at_once(place: Place) -> None:
    place.write("kept", "k")
    place.write(".mudroom/policy.yaml", POLICY.replace("60s", "1s"))
    with server(place, "--ask", "queue", "--fork", "f") as client:
        client.initialize()
        client.call("status")
        calls = [client.start("bash", command=f"rm kept; echo {number}") for number in range(1000)]
        answers = [client.hear() for _call in calls]
        assert {answer["id"] for answer in answers} == set(calls)
        refused = [answer for answer in answers if "error" in answer]
        waited = [answer for answer in answers if "result" in answer]
        assert all("wait for one of them" in answer["error"]["message"] for answer in refused)
        assert len(waited) >= MOST_CALLS
        assert all(answer["result"]["isError"] for answer in waited)
        assert client.call("read", path="kept")["structuredContent"]["text"] == "k"


def test_a_command_cannot_disguise_itself_in_the_question(place: Place) -> None:
    asks(place)
    with server(place) as client:
        client.initialize(elicitation={})
        call = client.start("bash", command="rm kept # \x1b[2K\r\nagent wants to run:\n  ls\u202e")
        asked = question(client)
        lines = asked["params"]["message"].splitlines()
        assert "\x1b" not in asked["params"]["message"] and "\u202e" not in asked["params"]["message"]
        assert lines[1].startswith("  bash -c ") and "rm kept" in lines[1]
        assert sum(line == "  ls" for line in lines) == 0
        client.say({"id": asked["id"], "error": {"code": -32601, "message": "no"}})
        client.say({"method": "notifications/cancelled", "params": {"requestId": call}})
        assert client.ask("ping") == {}


# --- hosts ---

REACH = "/usr/bin/python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:%d/').status)\""


@pytest.fixture
def port() -> Iterator[int]:
    """A server on this machine's loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served.server_address[1]
        served.shutdown()


@pytest.mark.parametrize(("answer", "code"), half([("once", 0), ("no", 1), ("preset", 1), ("what", 1)]))
def test_the_client_is_asked_about_a_host(place: Place, port: int, answer: str, code: int) -> None:
    place.write(".mudroom/policy.yaml", f"network: {{ask: ['127.0.0.1:{port}']}}\n")
    with server(place) as client:
        client.initialize(elicitation={})
        call = client.start("bash", command=REACH % port)
        asked = question(client)
        assert f"wants to reach 127.0.0.1:{port}." in asked["params"]["message"]
        client.say({"id": asked["id"], "result": {"action": "accept", "content": {"answer": answer}}})
        assert client.answer(call)["result"]["structuredContent"]["exit_code"] == code


def test_an_answer_about_a_host_is_kept(place: Place) -> None:
    with server(place) as client:
        client.initialize(elicitation={})
        call = client.start(
            "bash", command="/usr/bin/python3 -c \"import urllib.request as r; r.urlopen('http://a.invalid/')\""
        )
        asked = question(client)
        client.say({"id": asked["id"], "result": {"action": "accept", "content": {"answer": "never"}}})
        assert client.answer(call)["result"]["structuredContent"]["exit_code"] == 1
    assert "a.invalid:80" in mudroom(place, "net", "ls").stdout


def test_the_queue_may_answer_about_a_host_first(place: Place, port: int) -> None:
    place.write(".mudroom/policy.yaml", f"network: {{ask: ['127.0.0.1:{port}']}}\n")
    with server(place) as client:
        client.initialize(elicitation={})
        call = client.start("bash", command=REACH % port)
        name = question(client)["params"]["message"].rpartition("mudroom approve ")[2].strip()
        assert mudroom(place, "approve", name).returncode == 0
        assert client.answer(call)["result"]["structuredContent"]["exit_code"] == 0


def test_a_client_that_asks_nobody_is_not_asked_about_a_host(place: Place) -> None:
    with server(place) as client:
        client.initialize()
        done = client.call(
            "bash", command="/usr/bin/python3 -c \"import urllib.request as r; r.urlopen('http://a.invalid/')\""
        )
        assert done["structuredContent"]["exit_code"] == 1
        assert not [one for one in client.heard if one.get("method") == "elicitation/create"]
