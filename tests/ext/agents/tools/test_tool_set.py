"""The tools of a room in the forms of model APIs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import mudroom
from conformance.bypasses import groups as _of_bypasses  # noqa: F401  importing it fills the table
from conformance.escapes import groups as _of_escapes  # noqa: F401
from conftest import Place
from mudroom.errors import UsageError
from mudroom.ext.agents.library import FORMATS, RoomTools
from mudroom.ext.agents.mcp import resource
from mudroom.ext.agents.tools.table import TOOLS, call
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.library import satellite
from rooms import LONG, environ_of, open_room, policy, processes_with
from test_looks import storing
from test_shown_secrets import SHOWN_ENV, project, run

__all__ = ["project"]  # fixtures


@pytest.fixture
def room(place: Place) -> Iterator[mudroom.Room]:
    place.write("a.txt", "one\n")
    with open_room(place) as room:
        yield room


def schemas_of(row: dict[str, Any]) -> list[Any]:
    """Return the schema of a tool's arguments, wherever its API has it."""
    names = ("input_schema", "inputSchema", "parameters")
    return [place[name] for place in (row, row.get("function", {})) for name in names if name in place]


@pytest.mark.parametrize("form", FORMATS)
def test_definitions_are_json_with_every_tool(room: mudroom.Room, form: Any) -> None:
    tools = room.tools(form)
    texts = json.loads(json.dumps(tools.definitions))
    assert [row.get("name") or row["function"]["name"] for row in texts] == list(TOOLS) == list(tools.names)
    schemas = [value for row in texts for value in schemas_of(row)]
    assert len(schemas) == len(texts)
    assert all(schema["type"] == "object" and schema["additionalProperties"] is False for schema in schemas)
    assert room.forks() == [], "no fork is made before the first call"


def test_a_call_is_in_the_fork(room: mudroom.Room, place: Place) -> None:
    tools = room.tools("openai", fork="a")
    assert tools.call("write", {"path": "b.txt", "content": "b\n"}).is_error is False
    reply = tools.call("bash", '{"command": "cat a.txt b.txt; exit 3"}')
    assert (reply.data["output"], reply.data["exit_code"], reply.is_error) == ("one\nb\n", 3, False)
    assert (tools.fork, room.changes("a").paths, (place.project / "b.txt").exists()) == ("a", ["b.txt"], False)


CALLS: list[tuple[str, object, dict[str, object]]] = [
    (
        "openai",
        {"id": "c1", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}},
        {"role": "tool", "tool_call_id": "c1"},
    ),
    (
        "openai",
        SimpleNamespace(id="c1", function=SimpleNamespace(name="read", arguments='{"path": "a.txt"}')),
        {"role": "tool", "tool_call_id": "c1"},
    ),
    (
        "openai-responses",
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a.txt"}'},
        {"type": "function_call_output", "call_id": "c1"},
    ),
    (
        "anthropic",
        {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.txt"}},
        {"type": "tool_result", "tool_use_id": "t1", "is_error": False},
    ),
    ("mcp", {"name": "read", "arguments": {"path": "a.txt"}}, {"isError": False}),
]


@pytest.mark.parametrize(("form", "call", "expected"), CALLS)
def test_a_model_s_call_gets_a_message_of_its_api(
    room: mudroom.Room, form: Any, call: object, expected: dict[str, object]
) -> None:
    message = json.loads(json.dumps(room.tools(form, fork="a").reply(call)))
    assert message.items() >= expected.items()
    assert "one" in json.dumps(message)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("nothing", {}, "there is no tool 'nothing'"),
        ("bash", "{", "the arguments are not JSON"),
        ("bash", "[" * 100_000, "the arguments are not JSON"),
        ("bash", [1], "an object was expected"),
        ("read", {"path": "../x"}, "x"),
        ("read", {"paht": "x"}, "paht"),
        ("apply", {}, "there is no tool 'apply'"),
    ],
)
def test_a_wrong_call_is_a_reply(room: mudroom.Room, name: str, arguments: Any, text: str) -> None:
    reply = room.tools("anthropic", fork="a").call(name, arguments)
    assert reply.is_error and text in reply.text


def test_only_these_tools(room: mudroom.Room) -> None:
    tools = room.tools("mcp", only=["read", "bash"])
    assert tools.names == ("bash", "read")
    assert tools.call("write", {"path": "x", "content": ""}).is_error
    with pytest.raises(UsageError, match="there is no tool 'nothing'"):
        room.tools("mcp", only=["nothing"])
    with pytest.raises(UsageError, match="there are no tools for 'gemini'"):
        room.tools("gemini")  # type: ignore[arg-type]


def test_a_model_s_commands_are_judged_and_asked_about(place: Place) -> None:
    policy(
        place, "commands: {rules: [{pattern: rm, action: deny, instead: git rm}], classes: {unknown: require_approval}}"
    )
    asked: list[mudroom.Question] = []

    def ask(question: mudroom.Question) -> bool:
        asked.append(question)
        return True

    with open_room(place, ask=ask) as room:
        tools = room.tools("openai", fork="a")
        refused = tools.call("bash", {"command": "rm x"})
        assert refused.is_error and "git rm" in refused.text
        assert not tools.call("bash", {"command": "./unknown-program || true"}).is_error
        assert [question.agent for question in asked] == ["agent"]
        assert room.run("rm -f x").ran, "the program's own command is not judged"


def test_a_closed_room_has_no_tools(place: Place) -> None:
    with open_room(place) as room:
        tools = room.tools("openai")
    with pytest.raises(UsageError, match="is closed"):
        tools.call("bash", {"command": "true"})


def test_tools_of_asyncio_are_cancelled_with_their_command(place: Place) -> None:
    async def main() -> None:
        async with mudroom.aopen(place.project, environ=environ_of(place)) as room:
            tools = room.tools("anthropic", fork="a")
            assert tools.definitions == room.tools("anthropic").definitions
            assert (await tools.call("bash", {"command": "echo hi"})).data["output"] == "hi\n"
            message = await tools.reply({"id": "t", "name": "bash", "input": {"command": "echo x > made"}})
            assert message["tool_use_id"] == "t"
            task = asyncio.create_task(tools.call("bash", {"command": f"touch up; exec sleep {LONG}"}))
            while not processes_with(LONG):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert processes_with(LONG) == []
            assert (await room.changes(tools.fork)).paths == ["made", "up"]

    asyncio.run(main())


def test_the_formats_are_those_of_the_type() -> None:
    with open(satellite.__file__) as stream:
        line = next(row for row in stream if "ToolFormat: TypeAlias" in row)
    assert all(f'"{name}"' in line for name in FORMATS) and line.count('"') == 2 * len(FORMATS)


def test_the_names_are_those_of_the_type() -> None:
    def names_of(kind: type[Any]) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert names_of(RoomTools) == names_of(satellite.ToolSet)


def test_the_tools_of_an_agent_say_it(place: Place) -> None:
    session = place.session(agent="agent")
    background = storing(session)
    workspace = ToolWorkspace(session, "f")
    result = call(workspace, "diff", {})
    assert result.text.startswith("[f is running (") and "this is a look, not a review]\n" in result.text
    assert result.data["in_use"] == session.changes.look("f").in_use
    (content,) = resource.contents(workspace, resource.CHANGES)
    assert content["text"].startswith("f is running (")
    background.end()


def test_the_tools_of_an_agent(project: Place) -> None:
    run(project, b"echo more >> .env; echo x >> file", SHOWN_ENV)
    project.session().forks.checkpoint("f", "p")
    run(project, b"echo again >> .env; echo y >> file", SHOWN_ENV)
    workspace = ToolWorkspace(project.session(), "f")
    for since in ("", "p"):
        text = call(workspace, "diff", {"since": since}).text
        assert "hunter2" not in text and "+y" in text
        assert "# .env: a secret of the user's, which is not shown" in text
    for name, arguments in (("read", {"path": ".env"}), ("grep", {"pattern": "hunter2"})):
        assert "hunter2" not in call(workspace, name, arguments).text


def workspace(place: Place) -> ToolWorkspace:
    return ToolWorkspace(place.session(agent="agent"), "f")


@pytest.mark.parametrize("pattern", ["--pre=./evil", "-X./evil", "--exec=./evil", "-f/etc/passwd"])
def test_a_pattern_of_a_tool_is_never_an_option(place: Place, pattern: str) -> None:
    place.write("evil", "#!/bin/sh\ntouch ran\n", 0o755)
    place.write("a", f"one {pattern} two\n")
    found = call(workspace(place), "grep", {"pattern": pattern})
    assert not found.is_error
    assert [match["path"] for match in found.data["matches"]] == ["a"]
    assert not call(workspace(place), "glob", {"pattern": pattern}).is_error
    assert [name for name in os.listdir(place.project) if name == "ran"] == []
    assert [entry["name"] for entry in call(workspace(place), "list", {}).data["entries"]] == ["a", "evil"]


@pytest.mark.parametrize("name", ["dangerouslyDisableSandbox", "sandbox", "unsandboxed", "level", "env", "net"])
def test_no_argument_of_a_tool_leaves_the_sandbox(place: Place, name: str) -> None:
    assert [tool for tool, row in TOOLS.items() if name in row.input_schema["properties"]] == []
    result = call(workspace(place), "bash", {"command": "id", name: True})
    assert result.is_error
    assert name in result.text


@pytest.mark.parametrize("cwd", ["/", "..", "../..", "/etc", "sub/../..", "out", "out/x"])
def test_a_working_directory_outside_is_refused(place: Place, cwd: str) -> None:
    place.write("sub/a", "x")
    (place.project / "out").symlink_to(place.root)
    result = call(workspace(place), "bash", {"command": "pwd", "cwd": cwd})
    assert result.is_error, result.text
    assert not call(workspace(place), "bash", {"command": "pwd", "cwd": "sub"}).is_error
