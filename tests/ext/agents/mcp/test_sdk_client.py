"""The MCP SDK's own client against ``mudroom mcp``: every tool, on both transports, in both forms of the protocol."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from wire import mudroom, web

from conftest import Place, environment, full_listing, tick
from mudroom.ext.agents.tools.table import TOOLS
from tiers import half, pairs

HANDSHAKE, ENVELOPED = "legacy", "2026-07-28"

if TYPE_CHECKING:  # it takes a third of a second, and every process of a run imports this file
    import mcp_types as types
    from mcp.client.client import Client as SdkClient

    Use = Callable[[SdkClient], Awaitable[None]]
    Answer = Callable[[Any, types.ElicitRequestParams], Awaitable[types.ElicitResult]]


def run(place: Place, transport: str, mode: str, use: Use, *words: str, answer: Answer | None = None) -> None:
    """Use the SDK's client on a server of this place."""

    async def main() -> None:
        with anyio.fail_after(80):
            async with _connected(place, transport, mode, words, answer) as client:
                await use(client)

    anyio.run(main)


@asynccontextmanager
async def _connected(
    place: Place, transport: str, mode: str, words: tuple[str, ...], answer: Answer | None
) -> AsyncIterator[SdkClient]:
    import httpx2
    from mcp.client.client import Client as SdkClient
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    options: Any = {"mode": mode, "elicitation_callback": answer}
    if transport == "stdio":
        arguments = ["-m", "mudroom", "mcp", *words]
        parameters = StdioServerParameters(
            command=sys.executable, args=arguments, env=environment(place), cwd=str(place.project)
        )
        async with SdkClient(stdio_client(parameters), **options) as client:
            yield client
        return
    with web(place, *words) as served:
        headers = {"Authorization": f"Bearer {served.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            SdkClient(streamable_http_client(served.url, http_client=http), **options) as client,
        ):
            yield client


pytestmark = pytest.mark.slow
TRANSPORTS = ("stdio", "http")
every_way = pytest.mark.parametrize(("transport", "mode"), pairs(TRANSPORTS, (HANDSHAKE, ENVELOPED)))


def data(result: Any) -> dict[str, Any]:
    assert not result.is_error, result
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@pytest.mark.parametrize(("transport", "mode"), pairs(TRANSPORTS, (HANDSHAKE, ENVELOPED, "auto")))
def test_every_tool(place: Place, transport: str, mode: str) -> None:
    place.write("src/app.py", "def double(x):\n    return x + x\n")
    tick()
    before = full_listing(place.project)
    used = set()

    async def use(client: SdkClient) -> None:
        async def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
            used.add(tool)
            return data(await client.call_tool(tool, arguments))

        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == set(TOOLS)
        assert (await call("read", path="src/app.py"))["text"].startswith("def double")
        await call("checkpoint", name="start")
        await call("edit", path="src/app.py", old_string="x + x", new_string="2 * x")
        edits = [{"old_string": "double", "new_string": "twice"}, {"old_string": "2 *", "new_string": "2*"}]
        await call("multi_edit", path="src/app.py", edits=edits)
        await call("write", path="notes.md", content="# notes\n")
        assert [row["name"] for row in (await call("list"))["entries"]] == ["src", "notes.md"]
        assert (await call("glob", pattern="*.py"))["paths"] == ["src/app.py"]
        assert (await call("grep", pattern=r"2\*"))["matches"][0]["line"] == 2
        ran = await call(
            "bash",
            command="/usr/bin/python3 -c 'import sys; sys.path.insert(0, \"src\"); import app; print(app.twice(4))'",
        )
        assert ran["output"] == "8\n"
        assert "+def twice(x):" in (await call("diff"))["diff"]
        assert (await call("status"))["files"] >= 2
        assert len((await call("forks"))["forks"]) == 1
        assert (await call("why", command="ls"))["verdict"] == "allow"
        assert (await call("drop_held", effects=[]))["held"] == []
        assert (await call("remarks"))["remarks"] == ""
        await call("rollback", checkpoint="start")
        assert (await call("status"))["files"] == 0
        assert used == set(TOOLS)

    run(place, transport, mode, use)
    assert full_listing(place.project) == before


@every_way
def test_output_comes_as_progress_and_resources_are_read(place: Place, transport: str, mode: str) -> None:
    place.write("a.txt", "one\n")
    heard: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async def use(client: SdkClient) -> None:
        done = await client.call_tool(
            "bash", {"command": "echo first; sleep 0.3; echo last; echo x > a.txt"}, progress_callback=note
        )
        assert data(done)["output"] == "first\nlast\n"
        await anyio.sleep(0)
        uris = [str(row.uri) for row in (await client.list_resources()).resources]
        assert "mudroom:///files/a.txt" in uris
        read: Any = await client.read_resource("mudroom:///files/a.txt")
        assert read.contents[0].text == "x\n"

    run(place, transport, mode, use)
    assert heard[0] == "first\n"


@every_way
@pytest.mark.parametrize("word", half(["once", "no", "always", "decline"]))
def test_the_client_s_user_is_asked_about_a_command(place: Place, transport: str, mode: str, word: str) -> None:
    import mcp_types as types

    place.write("kept", "k")
    place.write(".mudroom/policy.yaml", "commands: {classes: {destructive: require_approval}}\n")
    asked: list[str] = []

    async def answer(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        if word == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"answer": word})

    async def use(client: SdkClient) -> None:
        done = await client.call_tool("bash", {"command": "rm kept"})
        allowed = word in ("once", "always")
        assert done.is_error is not allowed, done
        again = await client.call_tool("bash", {"command": "rm -f kept"})
        assert again.is_error is not allowed
        text: Any = done.content[0]
        assert allowed or "refused by the client" in text.text

    run(place, transport, mode, use, answer=answer)
    assert "rm kept" in asked[0] and "wants to run" in asked[0]
    assert (place.project / "kept").exists()


@every_way
def test_without_a_client_that_asks_the_queue_is_asked(place: Place, transport: str, mode: str) -> None:
    place.write("kept", "k")
    policy = "commands: {classes: {destructive: require_approval}, approval_timeout: 1s}\n"
    place.write(".mudroom/policy.yaml", policy)

    async def use(client: SdkClient) -> None:
        refused = await client.call_tool("bash", {"command": "rm kept"})
        text: Any = refused.content[0]
        assert refused.is_error and "waiting for approval" in text.text
        name = text.text.partition("mudroom approve ")[2].split(")")[0].split()[0].rstrip(";,.")
        done = await anyio.to_thread.run_sync(lambda: mudroom(place, "approve", name))
        assert done.returncode == 0, done.stderr
        allowed = await client.call_tool("bash", {"command": "rm kept"})
        assert not allowed.is_error, allowed

    run(place, transport, mode, use, "--fork", "f")


@every_way
def test_a_cancelled_call_of_the_sdk_ends_its_command(place: Place, transport: str, mode: str) -> None:
    async def use(client: SdkClient) -> None:
        began = anyio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            began.set()

        async def slow() -> None:
            await client.call_tool("bash", {"command": "echo up; exec sleep 1000"}, progress_callback=note)

        async with anyio.create_task_group() as group:
            group.start_soon(slow)
            await began.wait()
            group.cancel_scope.cancel()
        done = await client.call_tool("bash", {"command": "pgrep -x sleep || echo none"})
        assert data(done)["output"] == "none\n"

    run(place, transport, mode, use)
