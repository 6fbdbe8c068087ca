"""Run by test_vendors.py where ag2 is installed: its agent with its scripted model, and its shell and code tools."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
from ag2 import Agent
from ag2.events import ToolCallEvent
from ag2.testing import TestConfig
from ag2.tools import SandboxCodeTool, SandboxShellTool
from ag2.tools.sandbox import Sandbox, SandboxFactory, WorkdirAware
from vendor_project import run_of_page

from mudroom.ext.orchestra.ag2 import Ag2Environment


def call(name: str, **arguments: str) -> ToolCallEvent:
    return ToolCallEvent(name=name, arguments=json.dumps(arguments))


async def test_an_agent_works_in_a_fork(project: Path) -> None:
    with Ag2Environment(project) as environment:
        tools = [SandboxShellTool(environment), SandboxCodeTool(environment)]
        names = [tool.name for tool in tools]
        config = TestConfig(
            call(names[0], command="echo 42 > answer; cat answer .env"),
            call(names[1], code="cat answer", language="bash"),
            "done",
        )
        reply = await Agent("coder", config=config, tools=tools).ask("write the answer")
        assert reply.body == "done"
        assert not (project / "answer").exists()
        assert environment.workspace.apply().ok
    assert (project / "answer").read_text() == "42\n"


async def test_a_sandbox(project: Path) -> None:
    with Ag2Environment(project) as environment:
        assert isinstance(environment, SandboxFactory) and isinstance(environment, WorkdirAware)
        async with environment.open() as sandbox:
            assert isinstance(sandbox, Sandbox) and sandbox.host_workdir is None
            assert str(sandbox.workdir) == str(project)
            await sandbox.put_file(PurePosixPath("d/a"), b"1")
            assert await sandbox.exec(["sh", "-c", "cat d/a; echo $A"], env={"A": "b"}) == type(
                await sandbox.exec(["true"])
            )("1b", 0)
            assert (await sandbox.exec(["sleep", "60"], timeout=0.5)).exit_code == 124
            assert (await sandbox.exec(["sudo", "ls"])).exit_code == 126
            await sandbox.remove_file(PurePosixPath("d/a"))
            with pytest.raises(ValueError, match="absolute"):
                await sandbox.put_file(PurePosixPath("/etc/x"), b"")
        async with environment.open() as again:
            assert (await again.exec(["ls", "d"])).output == ""


async def test_the_page(project: Path) -> None:
    config = TestConfig(call("run_shell_command", command="echo 42 > answer"), "done")
    names = run_of_page("AG2", project, config=config, task="write the answer")
    assert "+42" in await names["main"]()
