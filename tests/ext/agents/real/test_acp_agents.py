"""Agents that exist behind ``mudroom acp``, in a client made with the SDK for npm.

``dev/agents --fetch`` installs both.

The agents play the steps of ``test_real_agents.py`` against the scripted model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, FETCHED, MUDROOM, PROMPT, RealAgent, Try

from test_real_agents import expected

SDK = FETCHED / "acp-sdk/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js"
HERE = Path(__file__).parent
WORDS = {"gemini": ("gemini", "--acp", "--skip-trust", "-m", "gemini-2.5-flash"), "opencode": ("opencode", "acp")}

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(200)]


def require_sdk() -> None:
    if not SDK.is_file():
        pytest.skip("real agent absent: acp-sdk (dev/agents --fetch installs it)")


def talk(here: Try, environment: Mapping[str, str], words: Sequence[str]) -> dict[str, Any]:
    """Return what a client has received from the agent that these words start."""
    node = shutil.which("node", path=here.environ["PATH"]) or "node"
    ended = here.run((node, str(HERE / "acp_client.mjs"), str(SDK), str(here.project), PROMPT, *words), environment)
    lines = [line for line in ended.output.splitlines() if line.startswith('{"version"')]
    assert (ended.code, len(lines)) == (0, 1), ended
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


@pytest.mark.parametrize("name", sorted(WORDS))
def test_all_steps_in_an_editor(tmp_path: Path, name: str) -> None:
    require_sdk()
    agent: RealAgent = BY_NAME[name]
    if not agent.version:
        pytest.skip(f"real agent absent: {name} (dev/agents --fetch installs it)")
    here = Try(tmp_path, agent)
    try:
        with ModelServer(here.steps()) as server:
            here.prepare(server)
            before, store = here.snapshot(), here.store()
            got = talk(here, here.environment(server), (*MUDROOM, "acp", "--", *WORDS[name]))
        assert server.played() == [step.name for step in server.steps], server.errors
        assert (got["version"], got["refused"], got["stopReason"], got["code"]) == (1, -32602, "end_turn", 0)
        leaks = here.leaks(server)
        assert not leaks
        assert here.snapshot() == before
        assert here.store() == store
        texts = [
            update["content"]["text"] for update in got["updates"] if update["sessionUpdate"] == "agent_message_chunk"
        ]
        assert f"fork `{name}`" in texts[0]
        assert "Nothing has reached the project" in texts[-1]
        assert all(f"stays in the fork {name}" in json.dumps(call) for call in got["asked"])
        assert str(here.project / "calc.py") in json.dumps(got["updates"]), "places are the project's"
        rows = json.loads(here.mudroom("diff", name, "--json"))["changes"]["files"]
        assert {row["path"] for row in rows if not row["path"].startswith(".git/")} == expected(agent)
        here.mudroom("apply", name, "--yes")
        assert "a + b" in (here.project / "calc.py").read_text()
    finally:
        here.close()


@pytest.mark.parametrize("options", [(), ("--outside",)], ids=["inside", "outside"])
def test_the_sdk_for_npm_on_both_sides(tmp_path: Path, options: tuple[str, ...]) -> None:
    require_sdk()
    here = Try(tmp_path, BY_NAME["gemini"])
    try:
        before = here.snapshot()
        node = shutil.which("node", path=here.environ["PATH"]) or "node"
        reads = ("--read", str(HERE), "--read", str(FETCHED / "acp-sdk"))
        words = (*MUDROOM, "acp", *reads, *options, "--", node, str(HERE / "acp_agent.mjs"), str(SDK))
        got = talk(here, here.environ, words)
        assert (got["version"], got["refused"], got["stopReason"]) == (1, -32602, "end_turn")
        texts = [
            update["content"]["text"] for update in got["updates"] if update["sessionUpdate"] == "agent_message_chunk"
        ]
        assert json.dumps(["two\n", -32002, 0, "two\none\n", "yes"], separators=(",", ":")) in texts
        shown = [update for update in got["updates"] if update.get("toolCallId") == "t"]
        assert "two\none\n(exit code 0)" in shown[-1]["content"][0]["content"]["text"]
        assert here.snapshot() == before
        assert "+one" in here.mudroom("diff", "node")
    finally:
        here.close()
