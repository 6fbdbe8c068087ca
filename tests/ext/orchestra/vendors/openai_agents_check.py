"""Run by test_vendors.py where openai-agents is installed: its sandbox agent with a scripted model, and a session."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from agents.models.interface import Model
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, InvalidManifestPathError, WorkspaceReadNotFoundError
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from vendor_project import run_of_page

import mudroom
from agents import ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled  # type: ignore[attr-defined]
from mudroom.ext.orchestra.openai_agents import MudroomSandboxClient, MudroomSandboxClientOptions

set_tracing_disabled(True)


class Scripted(Model):  # type: ignore[misc]
    """Calls a shell command each turn, and says what the last one has answered."""

    def __init__(self, *commands: str) -> None:
        self.commands = list(commands)

    async def get_response(self, **request: Any) -> Any:
        if self.commands:
            arguments = json.dumps({"cmd": self.commands.pop(0)})
            call = ResponseFunctionToolCall(
                call_id=str(len(self.commands)), name="exec_command", arguments=arguments, type="function_call"
            )
            return ModelResponse([call], Usage(), None)
        text = ResponseOutputText(text=str(request["input"][-1]), type="output_text", annotations=[])
        said = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse([said], Usage(), None)

    def stream_response(self, *_arguments: Any, **_more: Any) -> Any:
        raise NotImplementedError


async def test_an_agent_works_in_a_fork(project: Path) -> None:
    client = MudroomSandboxClient(project)
    agent = SandboxAgent(name="coder", model=Scripted("echo 42 > answer; cat .env", "cat answer a.txt brief.md; pwd"))
    manifest = Manifest(entries={"brief.md": File(content=b"do it")})
    config = RunConfig(sandbox=SandboxRunConfig(client=client, manifest=manifest))
    result = await Runner.run(agent, "write the answer", run_config=config)
    assert "42\\nhello\\ndo it" in str(result.final_output) and str(project) in str(result.final_output)
    assert sorted(path.name for path in project.iterdir()) == [".env", "a.txt"]
    with mudroom.open(project) as room:
        assert room.changes(client.forks[0]).paths == ["answer", "brief.md"]
        assert room.apply(client.forks[0]).ok
    assert (project / "answer").read_text() == "42\n"
    assert not list((project.parent / "state").rglob("*.tar")), "no copy of the workspace"


async def test_a_session(project: Path) -> None:
    client = MudroomSandboxClient(project)
    session = await client.create(options=MudroomSandboxClientOptions(fork="mine"))
    async with session:
        assert await session.running()
        await session.write(Path("d/bytes"), io.BytesIO(b"\xff\0"))
        assert (await session.read(Path("d/bytes"))).read() == b"\xff\0"
        assert await session.read_bounded(Path("a.txt"), max_bytes=3) == b"hel"
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("nope"))
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path("../outside"))
        with pytest.raises(InvalidManifestPathError):
            await session.write(Path("/etc/x"), io.BytesIO(b""))
        assert {Path(entry.path).name for entry in await session.ls(".")} >= {"a.txt", "d"}
        await session.mkdir("e/f", parents=True)
        await session.rm("e", recursive=True)
        await session.mv("d/bytes", "bytes")
        refused = await session.exec("sudo", "ls")
        assert refused.exit_code == 126 and b"refused" in refused.stderr
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 60 & sleep 61", timeout=0.5)
        assert b"sleep 6" not in (await session.exec("ps ax | grep -v ps")).stdout
        ticks = 0
        running = asyncio.create_task(session.exec("sleep 0.5; printf '\\377'; exit 3"))
        while not running.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 10, "the event loop was blocked"
        assert ((await running).stdout, (await running).exit_code) == (b"\xff", 3)
        archive = await session.persist_workspace()
        await session.exec("echo changed > a.txt")
        await session.hydrate_workspace(archive)
        assert (await session.read(Path("a.txt"))).read() == b"hello\n"
        payload = client.serialize_session_state(session.state)
    await client.delete(session)
    again = await client.resume(client.deserialize_session_state(dict(payload)))
    async with again:
        assert (await again.read(Path("bytes"))).read() == b"\xff\0"
        assert client.workspace(again).apply().ok
    await client.delete(again)
    assert (project / "bytes").read_bytes() == b"\xff\0"


async def test_a_root_of_its_own_is_refused(project: Path) -> None:
    with pytest.raises(ValueError, match="the manifest's root"):
        await MudroomSandboxClient(project).create(manifest=Manifest(root="/elsewhere"))


def test_the_page(project: Path) -> None:
    names = run_of_page("OpenAI Agents SDK", project, model=Scripted("echo 42 > answer"), task="write the answer")
    assert "+42" in names["diff"]
