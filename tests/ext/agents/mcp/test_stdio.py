"""``mudroom mcp`` on stdio, spoken to by hand: the handshake, what clients send wrongly, and clients that go away."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire import Stdio, mudroom, server

import forked
from clocks import give_way
from conftest import Place, environment, full_listing, tick
from mudroom.ext.agents.mcp import message
from mudroom.ext.agents.mcp.connection import MOST_CALLS

pytestmark = pytest.mark.slow


@pytest.fixture
def peer(place: Place) -> Iterator[Stdio]:
    place.write("a.txt", "one\n")
    tick()
    with server(place) as peer:
        yield peer


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ],
)
def test_old_and_new_clients_agree_on_a_revision(peer: Stdio, asked: str, given: str) -> None:
    result = peer.initialize(asked)
    assert result["protocolVersion"] == given
    assert result["serverInfo"]["name"] == "mudroom"
    tools = {tool["name"]: tool for tool in peer.ask("tools/list")["tools"]}
    assert len(tools) == 16
    assert ("outputSchema" in tools["read"]) == (given >= "2025-06-18")
    assert ("annotations" in tools["read"]) == (given >= "2025-03-26")
    done = peer.call("read", path="a.txt")
    assert done["content"][0]["text"] == "     1\tone\n"
    assert ("structuredContent" in done) == (given >= "2025-06-18")
    assert peer.ask("ping") == {}


def test_nothing_lands_and_a_human_step_applies(place: Place, peer: Stdio) -> None:
    before = full_listing(place.project)
    peer.initialize(name="Claude Code")
    peer.call("edit", path="a.txt", old_string="one", new_string="two")
    peer.call("bash", command="mkdir d; cp a.txt d/b.txt; rm a.txt")
    assert peer.hang_up() == 0
    assert full_listing(place.project) == before
    assert mudroom(place, "apply", "claude-code", "--yes").returncode == 0
    assert (place.project / "d/b.txt").read_text() == "two\n"
    assert not (place.project / "a.txt").exists()


def test_a_client_that_only_reads_leaves_no_fork(place: Place, peer: Stdio) -> None:
    peer.initialize()
    peer.call("read", path="a.txt")
    peer.hang_up()
    assert place.session().vault.forks() == []


WRONG = (
    (b"not json", message.PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": 1', message.PARSE_ERROR),
    (b"\xff\xfe\x00", message.PARSE_ERROR),
    (b"[" * 200_000, message.PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b', "method": "ping"}', message.PARSE_ERROR),
    (b"[]", message.INVALID_REQUEST),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', message.INVALID_REQUEST),
    (b"3", message.INVALID_REQUEST),
    (b'{"id": 1, "method": "ping"}', message.INVALID_REQUEST),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', message.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', message.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', message.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', message.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 3}', message.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', message.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1}', message.INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}', message.METHOD_NOT_FOUND),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', message.INVALID_REQUEST),  # not initialized
    (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}', message.INVALID_PARAMS),
    (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":3}}', message.INVALID_PARAMS),
)  # fmt: skip


def test_a_wrong_message_is_answered_and_the_next_is_served(peer: Stdio) -> None:
    for line, code in WRONG:
        peer.raw(line + b"\n")
        assert peer.hear()["error"]["code"] == code, line[:100]
    peer.initialize()
    assert peer.ask("ping") == {}


def test_messages_that_want_no_answer_get_none(peer: Stdio) -> None:
    peer.initialize()
    peer.raw(b"\n  \n\r\n")
    peer.say({"method": "notifications/no-such"})
    peer.say({"method": "notifications/cancelled", "params": {"requestId": {"a": 1}}})
    peer.say({"method": "notifications/cancelled", "params": {"requestId": 77}})
    peer.say({"id": "mudroom-9", "result": {"action": "accept"}})
    assert peer.answer(peer.begin("ping"))["result"] == {}
    assert peer.heard == []


def test_a_wrong_call_is_an_error_that_says_what_there_is(peer: Stdio) -> None:
    peer.initialize()
    wrong: tuple[dict[str, Any], ...] = (
        {"name": "no_such"},
        {"name": 3},
        {},
        {"name": "read", "arguments": ["a.txt"]},
        {"name": "read", "arguments": "a.txt"},
    )
    for params in wrong:
        error = peer.error("tools/call", **params)
        assert error["code"] == message.INVALID_PARAMS, params
        assert "arguments has to be an object" in error["message"] or "the tools are bash, read" in error["message"]


def test_arguments_of_100_megabytes_are_refused_in_bounded_memory(peer: Stdio) -> None:
    peer.initialize()
    peer.call("status")
    before = _peak(peer)
    head = b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "write", "arguments": {"content": "'
    peer.raw(head)
    for _piece in range(100):
        peer.raw(b"x" * 1_000_000)
    peer.raw(b'"}}}\n')
    error = peer.hear()["error"]
    assert "too large" in error["message"]
    assert _peak(peer) - before < 4 * message.MOST
    assert peer.ask("ping") == {}


def _peak(peer: Stdio) -> int:
    """Return the most memory that the server has had, in bytes: VmHWM, proc_pid_status(5)."""
    status = Path(f"/proc/{peer.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def test_a_request_that_is_cancelled_ends_its_command_and_gets_no_answer(peer: Stdio) -> None:
    peer.initialize()
    slow = peer.begin(
        "tools/call",
        name="bash",
        arguments={"command": "touch began; echo up; exec sleep 1000"},
        _meta={"progressToken": "p"},
    )
    while not any("up" in str(note["params"]) for note in peer.heard if note["method"] == "notifications/progress"):
        peer.heard.append(peer.hear())
    peer.say({"method": "notifications/cancelled", "params": {"requestId": slow, "reason": "enough"}})
    done = peer.call("bash", command="ls; pgrep -x sleep || echo none")
    assert done["structuredContent"]["output"] == "a.txt\nbegan\nnone\n"
    assert all(note.get("id") != slow for note in peer.heard)


def test_progress_carries_the_output_as_it_comes(peer: Stdio) -> None:
    peer.initialize()
    call = peer.begin(
        "tools/call",
        name="bash",
        arguments={"command": "echo first; until test -e go; do sleep 0.01; done; echo last"},
        _meta={"progressToken": 7},
    )
    note = peer.hear()
    assert note["params"] == {"progressToken": 7, "progress": 1, "message": "first\n"}
    peer.call("write", path="go", content="")
    assert peer.answer(call)["result"]["structuredContent"]["output"] == "first\nlast\n"


def test_two_requests_with_one_id_do_not_mix(peer: Stdio) -> None:
    peer.initialize()
    peer.say({"id": "x", "method": "tools/call", "params": {"name": "bash", "arguments": {"command": "sleep 1000"}}})
    peer.say({"id": "x", "method": "ping"})
    assert "under way" in peer.hear()["error"]["message"]
    peer.say({"method": "notifications/cancelled", "params": {"requestId": "x"}})
    assert peer.ask("ping") == {}


def test_the_end_of_stdin_ends_commands_and_leaves_the_fork_whole(place: Place, peer: Stdio) -> None:
    before = full_listing(place.project)
    peer.initialize()
    peer.call("bash", command="sleep 1000; touch never", background=True)
    peer.begin(
        "tools/call",
        name="bash",
        arguments={"command": "touch began; echo up; sleep 1000; touch never"},
        _meta={"progressToken": 1},
    )
    peer.hear()
    assert peer.hang_up() == 0
    assert full_listing(place.project) == before
    session = place.session()
    assert {change.path for change in session.changes.of("tester").changes} == {b"began"}
    assert session.run([b"ls"], fork="tester").stdout == b"a.txt\nbegan\n"
    assert _commands_of(place) == []


def test_a_shell_s_pipe_gets_the_answers_of_its_last_requests(place: Place) -> None:
    """``printf … | mudroom mcp``: the end of stdin is there before the first request is read."""
    lines: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {},
         "clientInfo": {"name": "pipe", "version": "1"}}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "write", "arguments": {"path": "b.txt", "content": "b"}}},
        {"id": 3, "method": "tools/call", "params": {"name": "bash", "arguments": {"command": "echo said"}}},
        {"id": 4, "method": "tools/call", "params": {"name": "bash", "arguments": {"command": "sleep 1000"}}},
    ]  # fmt: skip
    said = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    done = forked.run(
        ["mcp"],
        cwd=place.project,
        env=environment(place),
        input=said,
        timeout=60,
    )
    assert done.returncode == 0
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert sorted(answers) == [1, 2, 3, 4]
    late = "stdin was closed before this was done"
    assert answers[4]["error"]["message"] == late
    ended = [identity for identity in (2, 3) if "result" in answers[identity]]
    assert [answers[identity]["error"]["message"] for identity in {2, 3} - {*ended}] == [late] * (2 - len(ended))
    assert 3 not in ended or answers[3]["result"]["structuredContent"]["output"] == "said\n"
    if 2 in ended:  # on a busy machine it may have been too late
        assert place.session().run([b"cat", b"b.txt"], fork="pipe").stdout == b"b"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_server_that_is_killed_in_mid_command_leaves_no_process_and_the_same_bytes(
    place: Place, peer: Stdio, number: int
) -> None:
    before = full_listing(place.project)
    peer.initialize()
    peer.call("write", path="written", content="w")
    peer.begin(
        "tools/call",
        name="bash",
        arguments={"command": "echo x > a.txt; rm -rf d; echo up; exec sleep 1000"},
        _meta={"progressToken": 1},
    )
    peer.hear()
    peer.process.send_signal(number)
    peer.process.wait(60)
    peer.close()
    assert full_listing(place.project) == before
    deadline = time.monotonic() + 20
    while _commands_of(place) and time.monotonic() < deadline:
        give_way()
    assert _commands_of(place) == []
    with server(place, "--fork", "tester") as again:
        again.initialize()
        assert again.call("read", path="written")["structuredContent"]["text"] == "w"
        assert again.call("read", path="a.txt")["structuredContent"]["text"] == "x"


def _commands_of(place: Place) -> list[str]:
    """Return the processes that name the test's directory, or have its sleep, and are not ours."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            root = os.readlink(path / "cwd")
        except OSError:
            continue
        if int(path.name) != os.getpid() and str(place.project) in root:
            found.append(words)
    return found


def test_two_servers_on_one_fork_see_each_other_s_work(place: Place, peer: Stdio) -> None:
    with server(place, "--fork", "shared") as first, server(place, "--fork", "shared") as second:
        first.initialize()
        second.initialize()
        first.call("write", path="n", content="0\n")
        for number in range(6):
            one, other = (first, second) if number % 2 else (second, first)
            done = one.call("edit", path="n", old_string=f"{number}\n", new_string=f"{number + 1}\n")
            assert not done["isError"], done
            assert other.call("bash", command="cat n")["structuredContent"]["output"] == f"{number + 1}\n"
        assert first.call("read", path="n")["structuredContent"]["text"] == "6"
        started = first.call("bash", command="echo up; sleep 1000", background=True)["structuredContent"]
        beside = second.call("bash", command="cat n; echo more > m")["structuredContent"]
        assert beside["output"] == "6\n"
        refused = second.call("read", path="n")
        assert refused["isError"] and "use bash" in refused["content"][0]["text"]
        first.call("bash", id=started["id"], end=True)
        assert second.call("read", path="m")["structuredContent"]["text"] == "more"


def test_more_calls_than_threads_are_refused_one_by_one(peer: Stdio) -> None:
    peer.initialize()
    peer.call("status")
    first = peer.begin(
        "tools/call", name="bash", arguments={"command": "echo up; exec sleep 1000"}, _meta={"progressToken": 1}
    )
    peer.hear()
    waiting = [peer.start("bash", command="true") for _call in range(MOST_CALLS + 20)]
    refused = [peer.hear() for _call in range(21)]
    assert all("wait for one of them" in answer["error"]["message"] for answer in refused)
    peer.say({"method": "notifications/cancelled", "params": {"requestId": first}})
    for _call in range(MOST_CALLS - 1):
        assert peer.hear()["result"]["isError"] is False
    assert {answer["id"] for answer in refused} < set(waiting)


def test_resources(peer: Stdio) -> None:
    peer.initialize()
    peer.call("bash", command="echo two >> a.txt; printf 'a\\377' > 'b in.bin'")
    uris = [row["uri"] for row in peer.ask("resources/list")["resources"]]
    files = ["mudroom:///files/a.txt", "mudroom:///files/b%20in.bin"]
    assert uris == ["mudroom:///changes", "mudroom:///journal", "mudroom:///remarks", *files]
    assert peer.ask("resources/read", uri=uris.pop(2))["contents"][0]["text"] == ""
    assert "+two" in peer.ask("resources/read", uri=uris[0])["contents"][0]["text"]
    events = peer.ask("resources/read", uri=uris[1])["contents"][0]["text"].splitlines()
    assert [json.loads(event)["kind"] for event in events] == ["fork", "run"]
    assert peer.ask("resources/read", uri=uris[2])["contents"][0]["text"] == "one\ntwo\n"
    assert peer.ask("resources/read", uri=uris[3])["contents"][0]["blob"] == "Yf8="
    assert peer.ask("resources/templates/list")["resourceTemplates"][0]["uriTemplate"] == "mudroom:///files/{+path}"


OUTSIDE = [
    "mudroom:///files/../../etc/passwd",
    "mudroom:///files/%2e%2e/x",
    "mudroom:///files//etc/passwd",
    "file:///etc/passwd",
    "mudroom:///files/a%00b",
    "mudroom:///files/\ud800",
    "mudroom:///files/gone",
    "mudroom:///files/",
    "mudroom:///nothing",
    "",
    "mudroom:///files/link/passwd",
]


def test_no_resource_leads_out(place: Place, peer: Stdio) -> None:
    (place.project / "link").symlink_to("/etc")
    peer.initialize()
    for uri in OUTSIDE:
        error = peer.error("resources/read", uri=uri)
        assert error["code"] in (message.INVALID_PARAMS, message.RESOURCE_NOT_FOUND), uri


def test_a_policy_that_allows_it_adds_apply(place: Place, peer: Stdio) -> None:
    peer.initialize()
    assert peer.error("tools/call", name="apply", arguments={})["code"] == message.INVALID_PARAMS
    place.write(".mudroom/policy.yaml", "mcp: {apply: true}\n")
    with server(place) as allowed:
        allowed.initialize()
        allowed.call("edit", path="a.txt", old_string="one", new_string="1")
        done = allowed.call("apply")
        assert not done["isError"], done
        assert (place.project / "a.txt").read_text() == "1\n"
        assert allowed.call("apply")["isError"]


def test_the_verb_says_what_is_wrong(place: Place) -> None:
    assert mudroom(place, "mcp", "--fork", "../x").returncode == 125
    assert mudroom(place, "mcp", "--http", "99999").returncode == 125
    assert "is not a port" in mudroom(place, "mcp", "--http", "-1").stderr
    done = mudroom(place, "mcp")  # the end of stdin at once
    assert (done.returncode, done.stdout) == (0, "")


def test_a_person_applies_discards_and_rolls_back_while_the_client_goes_on(place: Place, peer: Stdio) -> None:
    peer.initialize()
    peer.call("edit", path="a.txt", old_string="one", new_string="two")
    assert mudroom(place, "apply", "tester", "--yes").returncode == 0
    assert (place.project / "a.txt").read_text() == "two\n"
    peer.call("edit", path="a.txt", old_string="two", new_string="three")
    assert peer.call("bash", command="cat a.txt")["structuredContent"]["output"] == "three\n"
    assert peer.call("status")["structuredContent"]["files"] == 1
    peer.call("checkpoint", name="p")
    peer.call("write", path="late", content="")
    assert mudroom(place, "rollback", "p", "--fork", "tester", "--yes").returncode == 0
    assert peer.call("read", path="late")["isError"]
    assert mudroom(place, "discard", "tester").returncode == 0
    assert peer.call("read", path="a.txt")["structuredContent"]["text"] == "two"
    assert peer.call("bash", command="cat a.txt")["structuredContent"]["output"] == "two\n"


def test_a_person_edits_the_project_while_the_client_works(place: Place, peer: Stdio) -> None:
    peer.initialize()
    assert peer.call("read", path="a.txt")["structuredContent"]["text"] == "one"
    place.write("a.txt", "changed\n")
    place.write("new.txt", "new\n")
    assert peer.call("read", path="a.txt")["structuredContent"]["text"] == "changed"
    assert peer.call("bash", command="cat new.txt")["structuredContent"]["output"] == "new\n"
    assert peer.call("glob", pattern="new.*")["structuredContent"]["paths"] == ["new.txt"]
    assert "not found" in peer.call("edit", path="a.txt", old_string="one", new_string="x")["content"][0]["text"]


def test_a_secret_is_not_shown_and_said_to_be_one(place: Place) -> None:
    place.write(".env", "TOKEN=very-secret\n")
    with server(place) as client:
        client.initialize()
        shown = client.call("read", path=".env")
        assert "very-secret" not in json.dumps(shown) and "secret" in shown["content"][0]["text"]
        assert client.call("grep", pattern="very-secret", path=".env")["structuredContent"]["matches"] == []
        read = client.answer(client.begin("resources/read", uri="mudroom:///files/.env"))
        assert "very-secret" not in json.dumps(read)


def test_inside_mudroom_there_is_no_server(place: Place) -> None:
    """Its fork would be in the sandbox's own home, and lost with it."""
    done = forked.run(
        ["mcp"],
        cwd=place.project,
        env={**environment(place), "MUDROOM": "1"},
        stdin=subprocess.DEVNULL,
        timeout=80,
    )
    assert done.returncode == 125
    assert done.stderr.startswith("mudroom: mudroom mcp runs inside mudroom")
