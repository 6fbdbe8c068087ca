"""Run by test_vendors.py where claude-agent-sdk is installed: its Claude Code, with a scripted model on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from claude_agent_sdk import ResultMessage, query
from model_server import ModelServer
from scenario import Step
from vendor_project import run_of_page

from mudroom.ext.orchestra.claude_agent_sdk import mudroom_options
from mudroom.ext.orchestra.workspace import ForkWorkspace

STEPS = (
    Step("look", "ls; cat .env"),
    Step("host", "sudo ls"),
    Step("write", "echo 42 > answer", "write", "answer", content="42\n"),
    Step("end", content="done"),
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    (home / ".claude").mkdir(parents=True)
    hook = {"hooks": [{"type": "command", "command": f"touch {tmp_path}/hooked"}]}
    settings = {"hooks": {name: [hook] for name in ("SessionStart", "PreToolUse", "Stop")}}
    (home / ".claude/settings.json").write_text(json.dumps(settings))
    return {"HOME": str(home), "ANTHROPIC_API_KEY": "scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


async def test_an_agent_has_the_tools_of_a_fork_alone(
    project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text((tmp_path / "home/.claude/settings.json").read_text())
    with ModelServer(STEPS) as server, ForkWorkspace(project, agent="claude") as workspace:
        options = mudroom_options(workspace, max_turns=9, env={**environment, "ANTHROPIC_BASE_URL": server.url})
        last = None
        async for message in query(prompt="write the answer", options=options):
            last = message
        assert isinstance(last, ResultMessage) and last.result == "done"
        assert server.errors == []
        assert "a.txt" in server.results[0] and "TOKEN" not in server.results[0]
        assert "refused" in server.results[1]
        offered = {tool["name"] for body in server.asked for tool in json.loads(body)["tools"]}
        assert offered and all(name.startswith("mcp__mudroom__") for name in offered - {"DeferredToolPlaceholder"})
        assert not (project / "answer").exists() and not (tmp_path / "hooked").exists()
        assert workspace.apply().ok
    assert (project / "answer").read_text() == "42\n"


@pytest.mark.parametrize("name", ["tools", "strict_mcp_config", "setting_sources", "plugins"])
def test_an_option_that_leads_past_the_sandbox_is_refused(project: Path, name: str) -> None:
    with ForkWorkspace(project) as workspace, pytest.raises(TypeError, match="is set by mudroom"):
        mudroom_options(workspace, **{name: []})


async def test_the_page(project: Path, environment: dict[str, str]) -> None:
    with ModelServer(STEPS[-2:]) as server:
        given = {"task": "write the answer", "env": {**environment, "ANTHROPIC_BASE_URL": server.url}}
        assert "+42" in await run_of_page("Claude Agent SDK", project, **given)["main"]()
