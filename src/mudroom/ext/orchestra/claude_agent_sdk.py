"""mudroom behind Claude's Agent SDK: its tools instead of the built-in ones.

    with ForkWorkspace("proj") as workspace:
        async for message in query(prompt="…", options=mudroom_options(workspace)):
            print(message)
        print(workspace.diff())

The model has the tools of ``mudroom mcp`` on the workspace's fork, and no others. Claude Code itself runs on this
machine, without the settings' hooks, plugins and servers, which would run outside the sandbox. ``mudroom claude`` runs
all of it in a sandbox.
"""

from __future__ import annotations

from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import aside
from mudroom.typing import TYPE_CHECKING, Any

with vendor("claude-agent-sdk"):
    from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, create_sdk_mcp_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mudroom.ext.orchestra.workspace import ForkWorkspace

FIXED = ("tools", "strict_mcp_config", "setting_sources", "plugins")


def mudroom_options(workspace: ForkWorkspace, **options: Any) -> ClaudeAgentOptions:
    """Return options for ``query`` and ``ClaudeSDKClient``. ``options``: more of them. Raise TypeError for one that
    would bring tools or settings from outside the sandbox."""
    for name in FIXED:
        if name in options:
            raise TypeError(f"{name} is set by mudroom: it would reach past the sandbox")
    toolset = workspace.room.tools("mcp", fork=workspace.fork.name)

    def handler(name: str) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
        async def call(arguments: dict[str, Any]) -> dict[str, Any]:
            reply = await aside(toolset.call, name, arguments)
            return {"content": [{"type": "text", "text": reply.text}], "is_error": reply.is_error}

        return call

    tools: list[Any] = [
        SdkMcpTool(str(row["name"]), str(row["description"]), row["inputSchema"], handler(str(row["name"])))
        for row in toolset.definitions
    ]
    servers = {**options.pop("mcp_servers", {}), "mudroom": create_sdk_mcp_server("mudroom", tools=tools)}
    allowed = [*options.pop("allowed_tools", ()), "mcp__mudroom"]
    return ClaudeAgentOptions(
        tools=[],
        strict_mcp_config=True,
        setting_sources=[],
        plugins=[],
        mcp_servers=servers,
        allowed_tools=allowed,
        **{"cwd": workspace.root, **options},
    )
