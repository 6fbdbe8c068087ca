"""``mudroom acp`` as an editor starts it, with a scripted agent inside and outside."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from editor import mudroom
from serve_start import FORK, Start, both, start

from conftest import Place, full_listing, listing

__all__ = ["start"]


@pytest.mark.both_users
def test_calls_terminals_and_the_agent_itself_see_the_same_files(place: Place, start: Start) -> None:
    place.write("a.txt", "first\nsecond\nthird\n")
    before = full_listing(place.project)
    editor = start()
    editor.open()
    results = editor.turn(
        ["read", "a.txt"],
        ["write", "new/made.txt", "by a call\n"],
        ["own_read", "new/made.txt"],
        ["own_write", "own.txt", "by itself\n"],
        ["read", "own.txt"],
        ["shell", "cat new/made.txt own.txt && pwd && echo by a terminal > t.txt && exit 3"],
        ["read", "t.txt"],
        ["own_read", "t.txt"],
    )
    assert results[0] == {"content": "first\nsecond\nthird\n"}
    assert results[2] == "by a call\n"
    assert results[4] == {"content": "by itself\n"}
    assert results[5]["output"] == f"by a call\nby itself\n{place.project}\n"
    assert results[5]["end"] == results[5]["exitStatus"] == {"exitCode": 3, "signal": None}
    assert results[6:] == [{"content": "by a terminal\n"}, "by a terminal\n"]
    assert editor.leave() == 0
    assert full_listing(place.project) == before
    mudroom(place, "apply", FORK, "--yes")
    assert {name for name in listing(place.project) if name not in before} >= {"new/made.txt", "own.txt", "t.txt"}


def test_an_agent_outside_is_staged_as_far_as_it_calls(place: Place, start: Start) -> None:
    place.write("a.txt", "first\n")
    editor = start("--outside")
    editor.open()
    results = editor.turn(
        ["write", "made.txt", "by a call\n"],
        ["shell", "cat made.txt; echo t > t.txt"],
        ["own_write", "own.txt", "by itself\n"],
        ["read", "own.txt"],
    )
    assert results[1]["output"] == "by a call\n"
    assert (place.project / "own.txt").read_text() == "by itself\n", "its process is the host's"
    assert results[3] == {"content": "by itself\n"}
    assert not (place.project / "made.txt").exists()
    assert not (place.project / "t.txt").exists()
    assert "mudroom apply" in editor.texts()[-1]
    mudroom(place, "apply", FORK, "--yes")  # while the agent goes on
    assert (place.project / "made.txt").read_text() == "by a call\n"
    assert editor.turn(["write", "later.txt", "x"], ["read", "made.txt"])[1] == {"content": "by a call\n"}
    assert editor.leave() == 0
    assert "later.txt" in mudroom(place, "diff", FORK)


@both
def test_a_write_is_on_disk_when_its_call_returns(place: Place, start: Start, options: tuple[str, ...]) -> None:
    editor = start(*options)
    editor.open()
    seen: list[str] = []

    def killed(_params: dict[str, Any]) -> Any:
        seen.append(mudroom(place, "diff", FORK))
        editor.process.kill()
        editor.process.wait()
        raise EOFError

    editor.answer = killed
    with pytest.raises(EOFError):
        editor.turn(["write", "made.txt", "by a call\n"], ["permission", "go on", "ls"])
    assert "+by a call" in seen[0]
    assert "+by a call" in mudroom(place, "diff", FORK)


def test_file_calls_do_not_wait_for_a_command_that_begins(place: Place, start: Start) -> None:
    for _round in range(4):
        editor = start("--outside")
        editor.open()
        end, errors = editor.turn(["calls_beside", "sleep 40", 40])[0]
        assert (end["signal"], errors) == ("SIGTERM", []), f"it has not ended by itself: {end}"
        assert editor.leave() == 0


def test_a_running_agent_is_applied_by_a_fork_of_its_fork(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    editor.turn(["write", "made.txt", "done\n"])
    assert f"mudroom fork new {FORK}-turn1 --from {FORK}" in editor.texts()[-1]
    assert "made.txt" in mudroom(place, "diff", FORK)
    mudroom(place, "fork", "new", f"{FORK}-turn1", "--from", FORK)
    mudroom(place, "apply", f"{FORK}-turn1", "--yes")
    assert (place.project / "made.txt").read_text() == "done\n"
    assert editor.turn(["own_read", "made.txt"]) == ["done\n"]


def test_a_file_that_the_user_saves_is_seen(place: Place, start: Start) -> None:
    place.write("a.txt", "old\n")
    editor = start()
    editor.open()
    assert editor.turn(["read", "a.txt"]) == [{"content": "old\n"}]
    place.write("a.txt", "new\n")
    assert editor.turn(["read", "a.txt"], ["shell", "cat a.txt"])[0] == {"content": "new\n"}


def test_calls_that_wait_have_no_threads(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    threads: list[int] = []

    def count(_params: dict[str, Any]) -> Any:
        threads.append(len(os.listdir(f"/proc/{editor.process.pid}/task")))
        return {"outcome": {"outcome": "cancelled"}}

    editor.answer = count
    results = editor.turn(["many_waits", 900])[0]
    assert results == [{"exitCode": None, "signal": "SIGTERM"}] * 900
    assert threads[0] < 50


def test_a_file_that_fits_into_no_message_is_refused_without_being_read(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    make = "yes x | head -c 20000 > large && truncate -s 100G large"
    results = editor.turn(["shell", make], ["read", "large"], ["read", "large", {"line": 2, "limit": 1}])
    assert "by line and limit" in results[1]["message"]
    assert results[2] == {"content": "x\n"}
    with open(f"/proc/{editor.process.pid}/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    assert peak < 200_000, "kB"


def test_terminals_that_are_not_released_are_forgotten(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    first, last = editor.turn(["many_shells", 70])[0]
    assert "there is no terminal" in first["message"]
    assert last["output"] == "69\n"


@both
def test_capabilities_are_those_that_mudroom_answers(place: Place, start: Start, options: tuple[str, ...]) -> None:
    editor = start(*options)
    meta = {"y": 2, "terminal-auth": True}
    has = {"fs": {"readTextFile": not options, "x": 1}, "auth": {"terminal": True}, "_meta": meta}
    answer = editor.request("initialize", protocolVersion=1, clientCapabilities=has, clientInfo={"name": "e"})
    got = answer["result"]["_meta"]["got"]
    wanted = bool(options)
    assert got["clientCapabilities"] == {
        "fs": {"readTextFile": wanted, "writeTextFile": wanted, "x": 1},
        "terminal": True, "auth": {"terminal": False}, "_meta": {"y": 2},
    }  # fmt: skip
    assert got["clientInfo"] == {"name": "e"}


def test_a_session_elsewhere_is_refused_with_a_way_out(place: Place, start: Start) -> None:
    editor = start()
    editor.request("initialize", protocolVersion=1)
    for method in ("session/new", "session/load", "session/resume", "session/fork"):
        for cwd in ("/tmp", "relative", str(place.project / ".."), 7):
            error = editor.request(method, cwd=cwd, mcpServers=[], sessionId="s")["error"]
            assert error["code"] == -32602
            assert "mudroom acp --project" in error["message"]


def test_directories_and_servers_of_a_session(place: Place, start: Start) -> None:
    (place.project / "sub").mkdir()
    (place.root / "link").symlink_to(place.project)
    editor = start()
    editor.request("initialize", protocolVersion=1)
    answer = editor.request(
        "session/new",
        cwd=str(place.root / "link/sub"),
        mcpServers=[{"name": "db", "command": "x", "args": [], "env": []}],
        additionalDirectories=[str(place.project / "sub"), "/etc"],
    )
    got = answer["result"]["_meta"]["got"]
    assert got["cwd"] == str(place.project / "sub")
    assert got["additionalDirectories"] == [str(place.project / "sub")]
    assert got["mcpServers"][0]["name"] == "db"
    assert editor.turn(["shell", "pwd"])[0]["output"] == f"{place.project}/sub\n"
    first = editor.texts()[0]
    assert "/etc" in first
    assert "MCP servers run with the agent, in its sandbox: db" in first
    assert FORK in first


def test_what_mudroom_does_not_know_passes_byte_for_byte(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    odd = '{ "jsonrpc":"2.0" , "method":"_zed.dev/x","params" :[1, 1.10,"é\\u00e9\\ud800"] }'
    editor.start_turn(
        ["send", odd], ["send", '{"jsonrpc":"2.0","id":1.5,"method":"future/thing"}'], ["receive"], ["seen"]
    )
    lines = [editor.line() for _line in range(3)]  # the first words of the session come first
    assert lines[1] == odd.encode() + b"\n"
    assert json.loads(lines[2])["method"] == "future/thing"
    answer = b'{"id": 1.5,  "result":{"\xc3\xa9":[ ]},"jsonrpc":"2.0"}'
    editor.send_line(answer)
    assert json.loads(editor.texts_until_end()) == [None, None, json.loads(answer), answer.decode() + "\n"]
    assert editor.request("_own/method", a=1)["result"] == {"method": "_own/method", "params": {"a": 1}}


TAKEN_DIFFERENTLY = (
    '{"jsonrpc":"2.0","id":"x","method":"_y","method":"fs/write_text_file","params":{"path":"/p","content":""}}',
    '{"jsonrpc":"2.0","id":"x","method":"fs/rename","params":{}}',
    '[{"jsonrpc":"2.0","id":"x","method":"fs/write_text_file","params":{}}]',
    '{"jsonrpc":"2.0","id":"x","result":{},"method":"fs/write_text_file","params":{}}',
    '{"jsonrpc":"2.0","method":"fs/write_text_file","params":{"path":"/p","content":""}}',
    '{"jsonrpc":"2.0","id":"x","method":NaN}',
    "{",
    "\udcff\udcfe",
)


def test_a_line_that_readers_take_differently_does_not_reach_the_editor(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    for line in TAKEN_DIFFERENTLY:
        editor.turn(["send", line])
        assert all(message.get("method") in (None, "session/update") for message in editor.received), line


def test_lines_of_the_editor_that_are_no_messages_are_answered(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    for line, code, identifier in (
        (b"{nonsense", -32700, None),
        (b"\xff\xff", -32700, None),
        (b"[]", -32600, None),
        (b'{"id":9,"x":1}', -32600, 9),
        (b'{"id":true,"method":"x"}', -32600, None),
        (b"[" * 100_000, -32700, None),
    ):
        editor.send_line(line)
        answer = editor.next()
        assert (answer["error"]["code"], answer["id"]) == (code, identifier)
    editor.send_line(b'{"jsonrpc":"2.0","id":"unknown","result":{}}')
    assert editor.turn(["shell", "echo still here"])[0]["output"] == "still here\n"


@pytest.mark.slow
def test_a_message_of_100_mb_is_refused_and_the_connection_goes_on(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    editor.send_line(
        b'{"jsonrpc":"2.0","id":77,"method":"session/prompt","params":{"x":"' + b"a" * 100_000_000 + b'"}}'
    )
    answer = editor.wait(77)
    assert "at most 64 MiB" in answer["error"]["message"]
    assert editor.turn(["write", "b.txt", "b" * 10_000_000], ["shell", "wc -c < b.txt"])[1]["output"] == "10000000\n"


@both
def test_names_that_no_file_has_are_answered_and_the_connection_goes_on(
    place: Place, start: Start, options: tuple[str, ...]
) -> None:
    place.write("in", "in\n")
    editor = start(*options)
    editor.request("initialize", protocolVersion=1, clientCapabilities={})
    odd = editor.request("session/new", cwd=f"{place.project}/\ud800", mcpServers=[])
    assert odd["error"]["code"] == -32602
    editor.open()
    names = ["n" * 256, "n" * 256 + "/in", "\ud800", "a\0b"]
    results = editor.turn(
        *(["read", name] for name in names), *(["write", name, "x"] for name in names), ["read", "in"]
    )
    assert [result["code"] for result in results[:-1]] == [-32602] * 2 * len(names)
    assert results[-1] == {"content": "in\n"}
    assert editor.leave() == 0


def test_paths_that_lead_out_are_refused(place: Place, start: Start) -> None:
    place.write("a.txt", "in\n")
    (place.root / "outside.txt").write_text("secret\n")
    (place.project / "out").symlink_to(place.root)
    (place.project / "in").symlink_to("a.txt")
    (place.project / "dangling").symlink_to("nowhere")
    editor = start("--outside")
    editor.open()
    refused: list[list[Any]] = [
        ["read", "../outside.txt"], ["read", "out/outside.txt"], ["read", "/etc/passwd"], ["write", "out/x", ""],
        ["write", "/tmp/x", ""], ["write", "new/../../x", ""], ["write", "dangling", "x"], ["write", "", "x"],
        ["read", "a\0b"], ["call", "fs/read_text_file", {"path": "a.txt"}], ["call", "fs/read_text_file", {}],
        ["call", "fs/write_text_file", {"path": f"{place.project}/b", "content": 1}],
        ["call", "fs/write_text_file", {"path": f"{place.project}/b", "content": "\ud800"}],
        ["call", "terminal/create", {"command": "pwd", "cwd": "/etc"}], ["call", "terminal/create", {"command": ""}],
        ["call", "terminal/output", {"terminalId": "mudroom-1"}],
    ]  # fmt: skip
    results = editor.turn(*refused, ["read", "in"], ["write", "in", "out\n"], ["read", "a.txt"], ["read", "none.txt"])
    assert [result.get("code") for result in results[:-4]] == [-32602] * (len(refused) - 1) + [-32002]
    assert results[-4:-1] == [{"content": "in\n"}, {}, {"content": "out\n"}]
    assert results[-1]["code"] == -32002
    assert results[-1]["message"].startswith("Resource not found: ")
    assert (place.project / "a.txt").read_text() == "in\n"
    assert sorted(path.name for path in place.root.iterdir() if path.is_file()) == ["outside.txt"]


def test_a_part_of_a_file_and_files_that_are_no_text(place: Place, start: Start) -> None:
    place.write("a.txt", "1\r\n2\n3")
    place.write("binary", b"\0\1")
    place.write("latin", b"\xe9\n")
    editor = start("--outside")
    editor.open()
    read = str(place.project / "a.txt")
    parts: list[dict[str, Any]] = [
        {"line": 2, "limit": 1},
        {"line": 3},
        {"limit": 0},
        {"line": 9},
        {"line": -1},
        {"limit": "1"},
    ]
    calls = [["call", "fs/read_text_file", {"path": read, **part}] for part in parts]
    results = editor.turn(*calls, ["read", "binary"], ["read", "latin"])
    assert [result.get("content", result.get("code")) for result in results] == [
        "2\n", "3", "", "", -32602, -32602, -32602, -32602,
    ]  # fmt: skip


def test_a_terminal_is_shown_as_text(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    editor.turn(["shown_shell", "printf 'a\\033[31mb```\\n'; echo end >&2"])
    contents = [
        message["params"]["update"]["content"]
        for message in editor.updates()
        if message["params"]["update"].get("toolCallId") == "shown"
    ]
    assert all(item["type"] == "content" for content in contents for item in content)
    assert contents[-1][0]["content"]["text"] == (
        "````console\n$ printf 'a\\033[31mb```\\n'; echo end >&2\nab```\nend\n(exit code 0)\n````"
    )


def test_programs_lines_and_variables(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    variables = [{"name": "GREETING", "value": "a b"}]
    results = editor.turn(
        ["shell", "echo", "a b", "$HOME;"],
        ["shell", "echo one && echo", "two three"],
        ["shell", "no-such-program-here"],
        ["shell", "kill -9 $$"],
        ["call", "terminal/create", {"command": "printenv", "args": ["GREETING"], "env": variables}],
        ["shell", "head -c 3000000 /dev/zero | tr '\\0' x"],
    )
    assert [result["output"] for result in results[:2]] == ["a b $HOME;\n", "one\ntwo three\n"]
    assert results[2]["end"] == {"exitCode": 127, "signal": None}
    assert "no-such-program-here" in results[2]["output"]
    assert results[3]["end"] == {"exitCode": None, "signal": "SIGKILL"}
    assert results[5]["truncated"]
    assert len(results[5]["output"]) == 1 << 20
    terminal = results[4]["terminalId"]
    ended, shown = editor.turn(
        ["call", "terminal/wait_for_exit", {"terminalId": terminal}],
        ["call", "terminal/output", {"terminalId": terminal}],
    )
    assert (ended["exitCode"], shown["output"]) == (0, "a b\n")


def test_cancel_in_the_middle_of_a_terminal(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    turn = editor.start_turn(["long_shell", "echo begun; sleep 1000"])
    while editor.texts()[-1:] != ["running"]:
        editor.next()
    editor.send({"method": "session/cancel", "params": {"sessionId": "s1"}})
    assert editor.wait(turn)["result"] == {"stopReason": "cancelled"}
    killed, ended = json.loads(next(text for text in editor.texts() if text.startswith("[")))[0]
    assert killed == {}
    assert ended == {"exitCode": None, "signal": "SIGTERM"}
    assert editor.turn(["cancelled_wait", "sleep 1000"])[0]["code"] == -32800


@both
def test_two_terminals_of_a_fork_reach_each_other(place: Place, start: Start, options: tuple[str, ...]) -> None:
    editor = start(*options)
    editor.open()
    first = editor.turn(["call", "terminal/create", {"command": "mkfifo pipe && cat pipe"}])[0]["terminalId"]
    editor.turn(["shell", "until [ -p pipe ]; do :; done; echo through > pipe"])
    ended, shown = editor.turn(
        ["call", "terminal/wait_for_exit", {"terminalId": first}], ["call", "terminal/output", {"terminalId": first}]
    )
    assert (ended["exitCode"], shown["output"]) == (0, "through\n")


def test_the_journal_names_the_agent(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    editor.turn(["shell", "true"])
    assert editor.leave() == 0
    rows = [json.loads(line) for line in mudroom(place, "log", "export").splitlines()]
    states = [row["data"]["state"] for row in rows if row["kind"] == "agent"]
    assert states == ["started", "ended"]


def test_remarks_that_wait_come_with_the_next_prompt_once(place: Place, start: Start) -> None:
    place.write("a.txt", "first\n")
    editor = start()
    editor.open()
    editor.turn(["own_write", "made.txt", "one\n"])
    mudroom(place, "comment", FORK, "made.txt", "what is it for?")
    assert "what is it for" not in json.dumps(editor.turn(["lines"]))
    assert "a command is running" in mudroom(place, "send", FORK, code=125)
    mudroom(place, "send", FORK, "--wait")
    assert "waits for the agent's look" in mudroom(place, "comment", FORK)
    before = len(editor.received)
    (line,) = editor.turn(["lines"])
    prompt = json.loads(line[-1])["params"]["prompt"]
    assert [block["type"] for block in prompt] == ["text", "text"]
    assert "Remark r1, about the file made.txt:\n> what is it for?\n" in prompt[1]["text"]
    assert "mudroom: your remarks were added to this prompt.\n\n" in editor.texts(before)
    assert "(sent in round 1)" in mudroom(place, "comment", FORK)
    (line,) = editor.turn(["lines"])
    assert len(json.loads(line[-1])["params"]["prompt"]) == 1
    assert editor.leave() == 0
