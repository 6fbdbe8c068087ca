"""Agents that exist, with no tools but those of ``mudroom mcp``: they fix a bug, and a person applies it.

``dev/agents`` installs and runs them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, MUDROOM, Try
from scenario import Step

from test_real_agents import place

RIGHT = "def add(a, b):\n    return a + b\n"
FORKS = {"claude": "claude-code", "codex": "codex-mcp-client"}


def steps(project: str) -> tuple[Step, ...]:
    path = f"{project}/calc.py"
    return (
        Step("explore", "ls; cat calc.py"),
        Step("read", "cat calc.py", "read", path),
        Step("edit", "false", "edit", path, "a - b", "a + b"),
        Step("test", "python3 -B -m unittest -q && echo passed"),
        Step("break", "rm -rf ./* && ls"),
        Step("write", "false", "write", path, content=RIGHT),
        Step("too far", "cat ~/.ssh/id_test; echo end"),
        Step("finish", content="Done."),
    )


def words(here: Try) -> tuple[str, ...]:
    """Return the agent's command line, with mudroom's tools alone."""
    command, *arguments = MUDROOM
    arguments.append("mcp")
    if here.agent.name == "claude":
        servers = {"mudroom": {"type": "stdio", "command": command, "args": arguments}}
        given = ("--mcp-config", json.dumps({"mcpServers": servers}), "--strict-mcp-config")
        return ("claude", "-p", "Fix calc.py", *given, "--tools", "", "--allowedTools", "mcp__mudroom")
    settings = (
        f"mcp_servers.mudroom.command={json.dumps(command)}",
        f"mcp_servers.mudroom.args={json.dumps(arguments)}",
        'mcp_servers.mudroom.default_tools_approval_mode="approve"',
        "features.shell_tool=false",
    )
    return ("codex", "exec", *(word for setting in settings for word in ("-c", setting)), "Fix calc.py")


@pytest.mark.deep
@pytest.mark.both_users
@pytest.mark.parametrize("name", FORKS)
def test_an_agent_with_mudroom_s_tools_alone(tmp_path: Path, name: str) -> None:
    here = place(tmp_path, BY_NAME[name])
    try:
        with ModelServer(steps(str(here.project))) as server:
            here.prepare(server)
            before = here.snapshot()
            ended = here.run(words(here), here.environment(server))
        said = f"{ended.output[-4000:]}\nerrors: {server.errors}"
        assert server.played() == [step.name for step in server.steps], said
        assert ended.code == 0, said
        assert here.snapshot() == before
        assert here.key not in json.dumps(server.results)
        assert FORKS[name] in here.mudroom("ls")
        here.mudroom("apply", FORKS[name], "calc.py", "--yes")
        assert (here.project / "calc.py").read_text() == RIGHT
    finally:
        here.close()
