"""An agent made with the SDK for Python (agent-client-protocol): it uses each call of a client.

Run as a program; ``test_sdk.py`` starts it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import acp
from acp import schema


class SdkAgent:
    def __init__(self) -> None:
        self._client: Any = None
        self._cwd = ""
        self._has: Any = None

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **_more: Any) -> Any:
        self._has = client_capabilities
        return schema.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_more: Any) -> Any:
        self._cwd = cwd
        return schema.NewSessionResponse(session_id="sdk")

    async def prompt(self, session_id: str, prompt: Any, **_more: Any) -> Any:  # noqa: ARG002 - named by the SDK
        client, path = self._client, f"{self._cwd}/made.txt"
        assert self._has.terminal
        await client.write_text_file(content="one\ntwo\n", path=path, session_id=session_id)
        part = await client.read_text_file(path=path, session_id=session_id, line=2, limit=1)
        try:
            await client.read_text_file(path=f"{self._cwd}/none", session_id=session_id)
        except acp.RequestError as error:
            missing = error.code
        made = await client.create_terminal(
            command="sort", args=["-r", "made.txt"], session_id=session_id, cwd=self._cwd
        )
        terminal = made.terminal_id
        content = [acp.tool_terminal_ref(terminal)]
        await client.session_update(session_id, acp.start_tool_call("t", "sort", kind="execute", content=content))
        ended = await client.wait_for_terminal_exit(session_id=session_id, terminal_id=terminal)
        shown = await client.terminal_output(session_id=session_id, terminal_id=terminal)
        await client.release_terminal(session_id=session_id, terminal_id=terminal)
        sleeping = await client.create_terminal(command="sleep", args=["1000"], session_id=session_id)
        await client.kill_terminal(session_id=session_id, terminal_id=sleeping.terminal_id)
        killed = await client.wait_for_terminal_exit(session_id=session_id, terminal_id=sleeping.terminal_id)
        options = [schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once")]
        call = schema.ToolCallUpdate(tool_call_id="p", title="touch x", raw_input={"command": "touch x"})
        allowed = await client.request_permission(options=options, session_id=session_id, tool_call=call)
        extension = await client.ext_method("example.org/x", {"a": 1})
        words = [
            part.content,
            missing,
            ended.exit_code,
            shown.output,
            killed.signal,
            allowed.outcome.outcome,
            extension,
        ]
        await client.session_update(session_id, acp.update_agent_message_text(repr(words)))
        return schema.PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **_more: Any) -> None:
        """There is nothing to cancel."""


if __name__ == "__main__":
    agent: Any = SdkAgent()
    asyncio.run(acp.run_agent(agent))
