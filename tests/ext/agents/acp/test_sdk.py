"""The SDK for Python on both sides: its client starts ``mudroom acp``, which starts its agent."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from editor import PYTHON, environment, mudroom

from conftest import Place
from tiers import daily

# The SDK is imported by what uses it: it takes a third of a second, and every process of a run imports this file.


class SdkClient:
    """A client without files and terminals: a call of theirs that reached it would be an error."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    async def request_permission(self, *, tool_call: Any, options: Any, **_more: Any) -> Any:
        from acp import schema

        self.asked.append(tool_call)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def session_update(self, *, update: Any, **_more: Any) -> None:
        self.updates.append(update)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"method": method, **params}

    def on_connect(self, conn: Any) -> None:
        """The test has the connection."""


@pytest.mark.parametrize("options", daily([(), ("--outside",)]))
def test_the_sdk_on_both_sides(place: Place, options: tuple[str, ...]) -> None:
    import acp

    packages = Path(acp.__file__).parents[1]
    script = place.root / "agent/sdk_agent.py"
    script.parent.mkdir()
    shutil.copy(Path(__file__).with_name("sdk_agent.py"), script)
    reads = ("--read", str(script.parent), "--read", str(packages), "--read", sys.base_prefix)
    words = ("-m", "mudroom", "acp", *reads, *options)
    if not options:
        words += ("--env", f"PYTHONPATH={packages}")
    client: Any = SdkClient()

    async def run() -> str:
        async with acp.spawn_agent_process(
            client, sys.executable, *words, "--", PYTHON if not options else sys.executable, str(script),
            env=environment(place), cwd=place.project,
        ) as (agent, _process):  # fmt: skip
            await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            session = await agent.new_session(cwd=str(place.project), mcp_servers=[])
            with pytest.raises(acp.RequestError, match="mudroom acp --project"):
                await agent.new_session(cwd="/", mcp_servers=[])
            answer = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block("go")])
            return str(answer.stop_reason)

    assert asyncio.run(run()) == "end_turn"
    texts = [update.content.text for update in client.updates if update.session_update == "agent_message_chunk"]
    extension = {"method": "example.org/x", "a": 1}
    assert repr(["two\n", -32002, 0, "two\none\n", "SIGTERM", "selected", extension]) in texts
    assert "stays in the fork" in client.asked[0].content[-1].content.text
    shown = [update for update in client.updates if getattr(update, "tool_call_id", "") == "t"]
    assert "two\none\n(exit code 0)" in shown[-1].content[0].content.text
    assert "made.txt" in texts[-1]
    assert os.listdir(place.project) == []
    fork = Path(PYTHON).name if not options else Path(sys.executable).name
    assert "+one" in mudroom(place, "diff", fork)
